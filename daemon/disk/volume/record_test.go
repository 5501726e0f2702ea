package volume

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

func full() record.Record {
	return record.Record{
		Version: record.Version, PV: pv, Namespace: "default", Claim: "data", ClaimUID: "uid", Class: "fast", Provisioner: "hostpath-provisioner",
		Node: "node-a", Scope: "node", Source: "hostPath", Reclaim: "Delete", OnDelete: "archive", Directory: pv, Requested: 1 << 30,
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Retained: true, Unpublished: true, Replaced: `{"kind":"PersistentVolume"}`,
	}
}

// laterOnly reports whether a damage is a record that a later program understands.
func laterOnly(damage string) bool { return damage == "newer" || damage == "other kind" }

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
		"newer":           []byte(`{"version": 3, "pv": "pvc-1", "directory": {"moved": "elsewhere"}}`),
		"huge version":    []byte(`{"version": 1e99}`),
		"negative":        bytes.Replace(good, []byte(`"version": 2`), []byte(`"version": -1`), 1),
		"another volume":  bytes.Replace(good, []byte(`"pv": "pvc-1"`), []byte(`"pv": "pvc-2"`), 1),
		"other kind":      bytes.Replace(good, []byte(`"pv"`), []byte(`"kind": "group", "pv"`), 1),
		"unknown field":   []byte(`{"version": 1, "pv": "pvc-1", "directory": "pvc-1", "quota": 1}`),
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
			before := contents(t, r.path)
			all := calls(r)
			all["Create"] = func() error { _, err := r.Create(t.Context(), r.id, spec(pv)); return err }
			all["Purge"] = func() error { _, err := r.Purge(t.Context(), r.id, pv); return err }
			for _, call := range []string{"Create", "Undo", "Trash", "PutBack", "Archive", "Retain", "Purge", "Lookup"} {
				if err := all[call](); !errors.Is(err, record.ErrDamaged) || errors.Is(err, record.ErrNewer) != laterOnly(name) {
					t.Errorf("%s: got %v, want ErrDamaged", call, err)
				}
			}
			must(t, all["Sweep"]())
			if after := contents(t, r.path); after != before {
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
		before := contents(t, r.path)
		must(t, os.WriteFile(r.meta("volumes", pv+newSuffix), text, 0o600))
		must(t, second(r.Sweep(t.Context(), r.id)))
		if after := contents(t, r.path); (after == before) == laterOnly(name) {
			t.Errorf("%s: after the sweep:\n%s", name, after)
		}
	}
}

// A torn new record proves nothing: what has the volume's name in the pool stays foreign.
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
	if got := contents(t, filepath.Join(r.path, spec(pv).Directory)); !strings.Contains(got, "not ours") {
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
		before := contents(t, r.path)
		if _, err := r.Create(t.Context(), r.id, spec(pv)); !errors.Is(err, record.ErrDamaged) {
			t.Errorf("%s: got %v, want ErrDamaged", name, err)
		}
		if _, err := r.List(t.Context(), r.id); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if after := contents(t, r.path); after != before {
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

// versions are records as other versions of this program write them.
func versions(t *testing.T) map[string]string {
	later, err := full().Encode()
	must(t, err)
	all := map[string]string{"later": strings.Replace(string(later), `"pv"`, `"later": {"a": "b"}, "pv"`, 1)}
	for _, name := range []string{"hostpath.json", "full.json", "least.json"} {
		text, err := os.ReadFile(filepath.Join("../../spec/record/testdata/v2", name))
		must(t, err)
		all[name] = string(text)
	}
	return all
}

// The record of an earlier version, and one to which a later version added a field, are what they
// are until they change. Then they are of this version, with all that they said.
func TestRecordOfAnotherVersion(t *testing.T) {
	for name, text := range versions(t) {
		r := onTmpfs(t)
		was, err := record.Decode([]byte(text), pv)
		must(t, err)
		write(t, filepath.Join(r.path, was.Directory, "file"), "data")
		file := r.meta("volumes", pv+recordSuffix)
		must(t, os.WriteFile(file, []byte(text), 0o600))
		if now, err := r.Lookup(t.Context(), r.id, pv); err != nil || now.Place != record.InPool {
			t.Errorf("%s: %v, %+v", name, err, now)
		}
		must(t, r.Trash(t.Context(), r.id, pv)) // which takes "retained" and "unheld" off
		must(t, r.PutBack(t.Context(), r.id, pv))
		must(t, r.Retain(t.Context(), r.id, pv))
		was.Version, was.Retained, was.Unheld = record.Version, true, false
		want, err := was.Encode()
		must(t, err)
		if now := string(r.raw(t, pv)); now != string(want) || strings.Contains(now, "later") != (name == "later") {
			t.Errorf("%s: written again:\n%s\nwant:\n%s", name, now, want)
		}
		if got := contents(t, filepath.Join(r.path, was.Directory)); !strings.Contains(got, "data") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// raw is what a record's file has.
func (r *rig) raw(t *testing.T, pv string) []byte {
	t.Helper()
	text, err := os.ReadFile(r.meta("volumes", pv+recordSuffix))
	must(t, err)
	return text
}
