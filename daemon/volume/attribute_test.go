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
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// logging are the filesystems on which earlier versions left the text of a record to the log.
var logging = []struct {
	name, fstype string
	mib          int
	args         []string
}{
	{"ext4", "ext4", 32, nil},
	{"ext4 with small blocks", "ext4", 32, []string{"-b", "1024"}},
	{"xfs", "xfs", 320, nil},
}

// A power cut under an earlier version took the data of a record, for which that version did not
// wait. This version knows the volume all the same, and its first sweep writes the record again.
// What this version makes is written out, also where the record is longer than a block.
func TestRecordInTheLog(t *testing.T) {
	for _, fs := range logging {
		t.Run(fs.name, func(t *testing.T) {
			image := hosttest.Mkfs(t, fs.fstype, fs.mib, fs.args...)
			path := hosttest.PoolMount(t, image)
			t.Cleanup(func() { hosttest.Unmount(t, path) })
			r := onDisk(t, path)
			long := spec("pvc-2")
			long.Claim = strings.Repeat("x", 2*attributeMax)
			must(t, second(r.Create(t.Context(), r.id, long)))
			r.createAsBefore(t, pv)
			short, err := r.inPool(t, pv)
			must(t, err)
			cutPower(t, path, withLog)
			hosttest.Unmount(t, path)
			image.Mount(t, path)
			r = restarted(&rig{path: path, id: pool.Identity(t, path)})
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

// What this version makes has no attribute: there is one place for what is true of a volume.
func TestNoAttributeIsWritten(t *testing.T) {
	for _, fs := range filesystems {
		r := onDisk(t, fs.dir(t))
		r.create(t, pv)
		if _, err := unix.Getxattr(r.meta("volumes", pv+recordSuffix), recordAttribute, nil); !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("%s: got %v, want ENODATA", fs.name, err)
		}
	}
}

// createAsBefore makes a volume as the versions before 0.2.0 did. It is frozen: each call stands
// here as it was made.
func (r *rig) createAsBefore(t *testing.T, pv string) {
	t.Helper()
	text, err := spec(pv).Record.Encode()
	must(t, err)
	file, dir := r.meta("volumes", pv+".json"), r.meta("staging", pv)
	fd, err := unix.Open(file+".new", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	must(t, err)
	defer unix.Close(fd)
	must(t, onlyError(unix.Write(fd, text)))
	must(t, unix.Fsetxattr(fd, "user.hostpath-provisioner.record", text, 0))
	must(t, unix.Mkdir(dir, 0o700))
	must(t, unix.Chown(dir, 1234, 5678))
	must(t, unix.Chmod(dir, 0o777))
	must(t, unix.Rename(file+".new", file))
	must(t, unix.Rename(dir, filepath.Join(r.path, spec(pv).Directory)))
	pool, err := unix.Open(r.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(pool)
	must(t, unix.Fsync(pool))
}

// Only what a power cut leaves is read from the attribute. What was written is not replaced.
func TestAttributeKnowsNoBetter(t *testing.T) {
	r := onDisk(t, mounted(t, "ext4", 64))
	r.createAsBefore(t, pv)
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
	r.createAsBefore(t, pv)
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
