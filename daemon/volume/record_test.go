package volume

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
)

func full() record.Record {
	return record.Record{
		Version: record.Version, PV: pv, Namespace: "default", Claim: "data", ClaimUID: "uid", Class: "fast", Provisioner: "hostpath-provisioner",
		Node: "node-a", Scope: "node", Source: "hostPath", Reclaim: "Delete", OnDelete: "archive", Directory: pv, Requested: 1 << 30,
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Retained: true, Unpublished: true, Replaced: `{"kind":"PersistentVolume"}`,
	}
}

func TestRecord(t *testing.T) {
	text, err := full().Encode()
	must(t, err)
	got, err := record.Decode(text, pv)
	if err != nil || got != full() {
		t.Errorf("%v, %+v", err, got)
	}
	if v := reflect.ValueOf(got); v.NumField() > 0 {
		for i := range v.NumField() {
			if v.Field(i).IsZero() && v.Type().Field(i).Tag.Get("json") != "-" {
				t.Errorf("the test does not fill in %s", v.Type().Field(i).Name)
			}
		}
	}
}

// damages are what can have happened to a record, and what it is then.
func damages(t testing.TB) map[string][]byte {
	good, err := full().Encode()
	must(t, err)
	return map[string][]byte{
		"empty":           {},
		"torn":            good[:len(good)/2],
		"zeros":           make([]byte, len(good)),
		"binary":          {0xff, 0xfe, 0x00},
		"null":            []byte("null"),
		"array":           []byte("[]"),
		"no fields":       []byte("{}"),
		"newer":           []byte(`{"version": 2, "pv": "pvc-1", "directory": {"moved": "elsewhere"}}`),
		"huge version":    []byte(`{"version": 1e99}`),
		"negative":        bytes.Replace(good, []byte(`"version": 1`), []byte(`"version": -1`), 1),
		"another volume":  bytes.Replace(good, []byte(`"pv": "pvc-1"`), []byte(`"pv": "pvc-2"`), 1),
		"unknown field":   bytes.Replace(good, []byte(`"pv"`), []byte(`"quota": 1, "pv"`), 1),
		"two":             append(bytes.Clone(good), good...),
		"wrong type":      bytes.Replace(good, []byte(`"retained": true`), []byte(`"retained": "no"`), 1),
		"directory ..":    bytes.Replace(good, []byte(`"directory": "pvc-1"`), []byte(`"directory": ".."`), 1),
		"directory /etc":  bytes.Replace(good, []byte(`"directory": "pvc-1"`), []byte(`"directory": "/etc"`), 1),
		"directory a/../": bytes.Replace(good, []byte(`"directory": "pvc-1"`), []byte(`"directory": "a/../../b"`), 1),
		"directory ours":  bytes.Replace(good, []byte(`"directory": "pvc-1"`), []byte(`"directory": ".hostpath-provisioner"`), 1),
		"no directory":    bytes.Replace(good, []byte(`"directory": "pvc-1"`), []byte(`"directory": ""`), 1),
		"too large":       bytes.Repeat([]byte(" "), record.MaxSize+1),
	}
}

// Nothing is done with a volume whose record cannot be read, and everything else goes on.
func TestDamagedRecord(t *testing.T) {
	for name, text := range damages(t) {
		t.Run(name, func(t *testing.T) {
			r := onTmpfs(t)
			data(t, r)
			r.create(t, "pvc-2")
			must(t, os.WriteFile(r.meta("volumes", pv+recordSuffix), text, 0o600))
			before := tree(t, r.path)
			all := calls(r)
			all["Create"] = func() error { _, err := r.Create(t.Context(), r.id, spec(pv)); return err }
			all["Purge"] = func() error { _, err := r.Purge(t.Context(), r.id, pv); return err }
			for _, call := range []string{"Create", "Undo", "Trash", "PutBack", "Archive", "Retain", "Purge", "Lookup"} {
				if err := all[call](); !errors.Is(err, record.ErrDamaged) || errors.Is(err, record.ErrNewer) != (name == "newer") {
					t.Errorf("%s: got %v, want ErrDamaged", call, err)
				}
			}
			must(t, all["Sweep"]())
			if after := tree(t, r.path); after != before {
				t.Errorf("touched:\n%swas:\n%s", after, before)
			}
			inventory, err := r.List(t.Context(), r.id)
			if err != nil || len(inventory.Volumes) != 1 || len(inventory.Damaged) != 1 || inventory.Damaged[0].File != pv+recordSuffix {
				t.Errorf("%v, %+v", err, inventory)
			}
		})
	}
}

// A record that was torn before it got its name is no record: nothing was made yet. One of a newer
// version is kept even so.
func TestTornNewRecord(t *testing.T) {
	for name, text := range damages(t) {
		if name == "too large" {
			continue // no version of this program writes such, so it is not torn, but strange
		}
		r := onTmpfs(t)
		before := tree(t, r.path)
		must(t, os.WriteFile(r.meta("volumes", pv+newSuffix), text, 0o600))
		must(t, second(r.Sweep(t.Context(), r.id)))
		if after := tree(t, r.path); (after == before) == (name == "newer") {
			t.Errorf("%s: after the sweep:\n%s", name, after)
		}
	}
}

// A torn new record proves nothing: what has the volume's name in the pool stays somebody else's.
func TestForeignBesideTornRecord(t *testing.T) {
	r := onTmpfs(t)
	write(t, filepath.Join(r.path, spec(pv).Directory, "file"), "not ours")
	must(t, os.WriteFile(r.meta("volumes", pv+newSuffix), []byte(`{"vers`), 0o600))
	for range 2 {
		if _, err := r.Create(t.Context(), r.id, spec(pv)); !errors.Is(err, ErrForeign) {
			t.Errorf("got %v, want ErrForeign", err)
		}
	}
	must(t, second(r.Sweep(t.Context(), r.id)))
	if _, err := r.Create(t.Context(), r.id, spec(pv)); !errors.Is(err, ErrForeign) {
		t.Errorf("after the sweep: got %v, want ErrForeign", err)
	}
	if got := tree(t, filepath.Join(r.path, spec(pv).Directory)); !strings.Contains(got, "not ours") {
		t.Error(got)
	}
}

// A torn new record beside a good one (a crash in Retain) never takes its place.
func TestTornBesideGood(t *testing.T) {
	for _, call := range []string{"Trash", "Archive", "Retain", "Sweep", "Create"} {
		r := onTmpfs(t)
		data(t, r)
		must(t, os.WriteFile(r.meta("volumes", pv+newSuffix), []byte(`{"vers`), 0o600))
		all := calls(r)
		all["Create"] = func() error { _, err := r.Create(t.Context(), r.id, spec(pv)); return err }
		must(t, all[call]())
		inventory, err := r.List(t.Context(), r.id)
		if err != nil || len(inventory.Damaged) > 0 || len(inventory.Volumes)+len(inventory.Archived) != 1 {
			t.Errorf("%s: %v, %+v", call, err, inventory)
		}
	}
}

// A record's place can be taken by anything; nothing hangs on it.
func TestRecordIsNoFile(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"link":      func(path string) error { return os.Symlink("/etc/passwd", path) },
		"fifo":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"socket":    func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
		"device":    func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))) },
	} {
		r := onTmpfs(t)
		must(t, make(r.meta("volumes", pv+recordSuffix)))
		before := tree(t, r.path)
		if _, err := r.Create(t.Context(), r.id, spec(pv)); !errors.Is(err, record.ErrDamaged) {
			t.Errorf("%s: got %v, want ErrDamaged", name, err)
		}
		if _, err := r.List(t.Context(), r.id); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if after := tree(t, r.path); after != before {
			t.Errorf("%s: touched:\n%s", name, after)
		}
	}
}

// Every error names pool, volume and what it is about.
func TestMessages(t *testing.T) {
	r := onTmpfs(t)
	data(t, r)
	_, err := r.Lookup(t.Context(), r.id, "pvc-9")
	other := spec(pv)
	other.ClaimUID = "another"
	_, conflict := r.Create(t.Context(), r.id, other)
	write(t, filepath.Join(r.path, spec("pvc-3").Directory), "")
	_, foreign := r.Create(t.Context(), r.id, spec("pvc-3"))
	moved := *r
	moved.id.Inode++
	for want, got := range map[string]error{
		`pool "fast": volume "pvc-9": not recorded`: err,
		`pool "fast": volume "pvc-1": recorded differently: directory "default-data-pvc-1" for claim default/data with UID uid-of-pvc-1`: conflict,
		`pool "fast": volume "pvc-3": directory "default-data-pvc-3": not made by this daemon`:                                           foreign,
		`pool "fast": volume "pvc-1": directory "default-data-pvc-1": the volume is not empty`:                                           r.Undo(t.Context(), r.id, pv),
		`pool "fast": volume "a/b": volume name "a/b": not usable as a name: it is not one path element`:                                 r.Trash(t.Context(), r.id, "a/b"),
		`pool "fast": volume "pvc-1": the pool's directory is not the one that was checked: PATH`:                                        moved.Trash(t.Context(), moved.id, pv),
	} {
		if strings.ReplaceAll(got.Error(), r.path, "PATH") != want {
			t.Errorf("got  %v\nwant %s", got, want)
		}
	}
}

// A record never panics, never names a directory outside, and survives being written again.
func FuzzRecord(f *testing.F) {
	for _, text := range damages(f) {
		f.Add(text, pv)
	}
	good, err := full().Encode()
	must(f, err)
	f.Add(good, pv)
	f.Add(good, "")
	f.Fuzz(func(t *testing.T, text []byte, pv string) {
		r, err := record.Decode(text, pv)
		if err != nil {
			if !errors.Is(err, record.ErrDamaged) {
				t.Fatalf("not ErrDamaged: %v", err)
			}
			return
		}
		if record.CheckPV(r.PV) != nil || record.CheckDirectory(r.Directory) != nil || strings.ContainsAny(r.Directory+r.PV, "/\x00") {
			t.Fatalf("accepted %+v", r)
		}
		again, err := r.Encode()
		must(t, err)
		if back, err := record.Decode(again, pv); err != nil || !back.Created.Equal(r.Created) {
			t.Fatalf("%v: %s", err, again)
		}
	})
}
