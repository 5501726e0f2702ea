package volume

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// logging are the filesystems whose log carries records, and what they cannot carry.
var logging = []struct {
	name, fstype string
	mib          int
	args         []string
	tooLong      int // bytes in a record's claim that keep its text out of the log
}{
	{"ext4", "ext4", 32, nil, 2 * attributeMax},
	{"ext4 with small blocks", "ext4", 32, []string{"-b", "1024"}, attributeMax - 500},
	{"xfs", "xfs", 320, nil, 2 * attributeMax},
}

// A power cut right after Create takes the data of a record, for which no call waited. The volume is
// known all the same, and the next sweep writes the record again. A text that the log cannot carry is
// waited for.
func TestRecordInTheLog(t *testing.T) {
	for _, fs := range logging {
		t.Run(fs.name, func(t *testing.T) {
			image := hosttest.Mkfs(t, fs.fstype, fs.mib, fs.args...)
			path := hosttest.PoolMount(t, image)
			t.Cleanup(func() { hosttest.Unmount(t, path) })
			r := onDisk(t, path)
			long := spec("pvc-2")
			long.Claim = strings.Repeat("x", fs.tooLong)
			r.create(t, pv)
			must(t, second(r.Create(t.Context(), r.id, long)))
			short, err := r.inPool(t, pv)
			must(t, err)
			cutPower(t, path, withLog)
			hosttest.Unmount(t, path)
			image.Mount(t, path)
			r = restarted(&rig{path: path, id: identity(t, path)})
			if text := r.raw(t, pv); len(bytes.Trim(text, "\x00")) > 0 {
				t.Errorf("the data of %s was written before the cut: nothing was tried", pv)
			}
			if got, err := r.inPool(t, pv); err != nil || got != short {
				t.Errorf("got %v, %+v, want %+v", err, got, short)
			}
			if got, err := record.Decode(r.raw(t, "pvc-2"), "pvc-2"); err != nil || got.Claim != long.Claim {
				t.Errorf("the long record: %v", err)
			}
			inventory, err := r.List(t.Context(), r.id)
			if err != nil || len(inventory.Volumes) != 2 {
				t.Errorf("%v, %+v", err, inventory)
			}
			must(t, second(r.Sweep(t.Context(), r.id)))
			if got, err := record.Decode(r.raw(t, pv), pv); err != nil || got != short {
				t.Errorf("after the sweep: %v, %+v", err, got)
			}
		})
	}
}

// Only what a power cut leaves is read from the attribute. What was written is not replaced.
func TestAttributeKnowsNoBetter(t *testing.T) {
	r := onDisk(t, mounted(t, "ext4", 64))
	r.create(t, pv)
	want, err := r.inPool(t, pv)
	must(t, err)
	whole := r.raw(t, pv)
	file := r.meta("volumes", pv+recordSuffix)
	for name, text := range map[string][]byte{
		"empty": {}, "torn": whole[:len(whole)/2], "zeros": make([]byte, len(whole)), "torn, then zeros": append(bytes.Clone(whole[:100]), make([]byte, 50)...),
	} {
		must(t, os.WriteFile(file, text, 0o600))
		if got, err := r.inPool(t, pv); err != nil || got != want {
			t.Errorf("%s: %v, %+v", name, err, got)
		}
		must(t, second(restarted(r).Sweep(t.Context(), r.id)))
		if got := r.raw(t, pv); !bytes.Equal(got, whole) {
			t.Errorf("%s: after the sweep: %q", name, got)
		}
	}
	for name, text := range damages(t) {
		if name == "empty" || name == "zeros" { // above
			continue
		}
		must(t, os.WriteFile(file, text, 0o600))
		must(t, second(restarted(r).Sweep(t.Context(), r.id)))
		if _, err := r.inPool(t, pv); !errors.Is(err, record.ErrDamaged) {
			t.Errorf("%s: got %v, want ErrDamaged", name, err)
		}
		if got := r.raw(t, pv); !bytes.Equal(got, text) {
			t.Errorf("%s: touched", name)
		}
	}
	must(t, os.WriteFile(file, append(bytes.Clone(whole), 0), 0o600))
	if _, err := r.inPool(t, pv); !errors.Is(err, record.ErrDamaged) {
		t.Errorf("zeros behind the text: got %v, want ErrDamaged", err)
	}
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, unix.Setxattr(file, recordAttribute, []byte(`{"version":`), 0))
	if _, err := r.inPool(t, pv); !errors.Is(err, record.ErrDamaged) {
		t.Errorf("a torn attribute: got %v, want ErrDamaged", err)
	}
	must(t, unix.Removexattr(file, recordAttribute))
	if _, err := r.inPool(t, pv); !errors.Is(err, record.ErrDamaged) {
		t.Errorf("no attribute: got %v, want ErrDamaged", err)
	}
}

// A record that cannot be written again, because the filesystem is full, stops no other call.
func TestRepairWithoutSpace(t *testing.T) {
	r := onDisk(t, mounted(t, "ext4", 64))
	r.create(t, pv)
	whole, ballast := r.raw(t, pv), filepath.Join(r.path, "ballast")
	must(t, os.Truncate(r.meta("volumes", pv+recordSuffix), 0))
	fill(t, ballast)
	must(t, second(r.Sweep(t.Context(), r.id)))
	if got := r.raw(t, pv); bytes.Equal(got, whole) {
		t.Fatal("there was room: nothing was tried")
	}
	if _, err := r.inPool(t, pv); err != nil {
		t.Error(err)
	}
	must(t, os.RemoveAll(ballast))
	must(t, second(r.Sweep(t.Context(), r.id)))
	if got := r.raw(t, pv); !bytes.Equal(got, whole) {
		t.Errorf("with room again: %q", got)
	}
}

// inPool is Lookup of a volume in the pool.
func (r *rig) inPool(t *testing.T, pv string) (record.Record, error) {
	t.Helper()
	got, err := r.Lookup(t.Context(), r.id, pv)
	if err == nil && got.Place != record.InPool {
		t.Errorf("%s is in %s", pv, got.Place)
	}
	got.Place = ""
	return got, err
}

// raw is what a record's file has.
func (r *rig) raw(t *testing.T, pv string) []byte {
	t.Helper()
	text, err := os.ReadFile(r.meta("volumes", pv+recordSuffix))
	must(t, err)
	return text
}

func onlyError[T any](_ T, err error) error { return err }
