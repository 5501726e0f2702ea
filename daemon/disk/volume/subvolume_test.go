package volume

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/treecopy"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/subvolume"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// onSubvolumes is a pool whose volumes are subvolumes.
func onSubvolumes(t *testing.T) *rig {
	t.Helper()
	return onDisk(t, filesystems[len(filesystems)-1].dir(t))
}

// isSubvolume reports whether a directory is one.
func isSubvolume(t *testing.T, dir string) bool {
	t.Helper()
	fd := dirFD(t, dir)
	defer unix.Close(fd)
	is, err := subvolume.Is(fd)
	must(t, err)
	return is
}

func dirFD(t *testing.T, dir string) int {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	return fd
}

// nest makes a subvolume in a directory, as a tenant may without a privilege.
func nest(t *testing.T, dir, name string) {
	t.Helper()
	at := dirFD(t, dir)
	defer unix.Close(at)
	must(t, subvolume.Create(at, name))
	write(t, filepath.Join(dir, name, "below", "file"), "in "+name)
}

// setReadOnly makes a subvolume read-only, as a tenant may its own.
func setReadOnly(t *testing.T, dir string) {
	t.Helper()
	fd := dirFD(t, dir)
	defer unix.Close(fd)
	flags := uint64(1 << 1) // BTRFS_SUBVOL_RDONLY
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), subvolume.RequestSetFlags, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		t.Fatal(errno)
	}
}

// A volume, its snapshot and what is made from that are subvolumes, with all that the volume had
// but the subvolumes inside, which are counted.
func TestSubvolumes(t *testing.T) {
	r := onSubvolumes(t)
	withData(t, r)
	source := filepath.Join(r.path, spec(pv).Directory)
	want := contents(t, source)
	nest(t, source, "nested")
	var copied treecopy.Copied
	snapshot := snapshotOf("btrfs")
	snapshot.Copied = func(c treecopy.Copied) { copied = c }
	_, err := r.Create(t.Context(), r.id, snapshot)
	must(t, errors.Join(err, r.Published(t.Context(), r.id, taken)))
	if want := (treecopy.Copied{Atomic: true, Subvolumes: 1}); copied != want {
		t.Errorf("told %+v, want %+v", copied, want)
	}
	must(t, os.Remove(filepath.Join(r.path, taken, "nested"))) // an empty directory
	_, err = r.Create(t.Context(), r.id, restoreOf("btrfs"))
	must(t, err)
	for name, dir := range map[string]string{pv: spec(pv).Directory, taken: taken, clone: restoreOf("btrfs").Directory} {
		rec, err := r.Lookup(t.Context(), r.id, name)
		must(t, err)
		dir = filepath.Join(r.path, dir)
		if !isSubvolume(t, dir) || rec.Atomic != (name != pv) {
			t.Errorf("%s: subvolume %t, atomic %t", name, isSubvolume(t, dir), rec.Atomic)
		}
		if got := contents(t, dir); name != pv && got != want {
			t.Errorf("%s has\n%swant:\n%s", name, got, want)
		}
	}
}

// A volume from before its pool had subvolumes has no snapshots, and nothing is left of a try. What
// is made from one, or from an earlier snapshot, is a copy file by file, and can have snapshots.
func TestSubvolumeOfPlainDirectory(t *testing.T) {
	r := onSubvolumes(t)
	_, err := r.Pool.Create(t.Context(), r.id, spec(pv))
	must(t, err)
	write(t, filepath.Join(r.path, spec(pv).Directory, "file"), "data")
	before := contents(t, r.path)
	if _, err := r.Create(t.Context(), r.id, snapshotOf("btrfs")); !errors.Is(err, subvolume.ErrNone) {
		t.Errorf("got %v, want ErrNone", err)
	}
	if got := contents(t, r.path); got != before {
		t.Errorf("a try left\n%swant:\n%s", got, before)
	}
	_, err = r.Create(t.Context(), r.id, copyOf("btrfs"))
	must(t, err)
	dir := filepath.Join(r.path, copyOf("btrfs").Directory)
	rec, err := r.Lookup(t.Context(), r.id, clone)
	must(t, err)
	if !isSubvolume(t, dir) || rec.Atomic || contents(t, dir) != contents(t, filepath.Join(r.path, spec(pv).Directory)) {
		t.Errorf("the copy is a subvolume: %t, atomic: %t, and has\n%s", isSubvolume(t, dir), rec.Atomic, contents(t, dir))
	}
}

// A snapshot that a daemon began when the pool's were made file by file is none of one moment, and
// is made anew.
func TestSnapshotOfEarlierWay(t *testing.T) {
	r := onSubvolumes(t)
	withData(t, r)
	_, err := r.Pool.Create(t.Context(), r.id, snapshotOf("btrfs"))
	must(t, err)
	if _, err := r.Create(t.Context(), r.id, snapshotOf("btrfs")); !errors.Is(err, ErrPlace) {
		t.Errorf("got %v, want ErrPlace", err)
	}
	r.purgeAll(t)
	r.take(t, "btrfs")
	if rec, err := r.Lookup(t.Context(), r.id, taken); err != nil || !rec.Atomic || !isSubvolume(t, filepath.Join(r.path, taken)) {
		t.Errorf("%+v, %v", rec, err)
	}
}

// What a tenant made of subvolumes is removed without CAP_SYS_ADMIN, also where it is read-only,
// also the volume itself.
func TestPurgeReadOnlySubvolumes(t *testing.T) {
	r := onSubvolumes(t)
	before := contents(t, r.path)
	withData(t, r)
	source := filepath.Join(r.path, spec(pv).Directory)
	must(t, os.MkdirAll(filepath.Join(source, "a/b"), 0o755))
	nest(t, filepath.Join(source, "a/b"), "nested")
	nest(t, filepath.Join(source, "a/b/nested/below"), "deeper")
	for _, dir := range []string{"a/b/nested/below/deeper", "a/b/nested", ""} {
		setReadOnly(t, filepath.Join(source, dir))
	}
	hosttest.Without(t, func() {
		err := errors.Join(r.Trash(t.Context(), r.id, pv), r.Discard(t.Context(), r.id, pv))
		if purged, purgeErr := r.Pool.Purge(t.Context(), r.id, pv); err != nil || purgeErr != nil || !purged.Forgotten {
			t.Errorf("%v, %v, %+v", err, purgeErr, purged)
		}
	}, unix.CAP_SYS_ADMIN)
	must(t, os.RemoveAll(filepath.Join(r.path, "foreign")))
	if got := contents(t, r.path); got != before {
		t.Errorf("left:\n%swant:\n%s", got, before)
	}
}

// The kernel does not move a read-only subvolume into another directory: why snapshots are none,
// and why the flag is cleared before a volume is moved.
func TestReadOnlySubvolumes(t *testing.T) {
	r := onSubvolumes(t)
	dir := r.create(t, pv)
	must(t, os.Mkdir(filepath.Join(r.path, "other"), 0o700))
	setReadOnly(t, dir)
	if err := os.Rename(dir, filepath.Join(r.path, "other", "there")); !errors.Is(err, unix.EROFS) {
		t.Errorf("got %v, want EROFS", err)
	}
	must(t, errors.Join(r.Trash(t.Context(), r.id, pv), r.PutBack(t.Context(), r.id, pv)))
}

// A program that writes one file, has it on stable storage, and then writes another one, finds in a
// snapshot nothing in the second that the first has not. Copied one file after another, with others
// between the two, they are out of order.
func TestSnapshotOfOneMoment(t *testing.T) {
	r := onSubvolumes(t)
	source := r.create(t, pv)
	write(t, filepath.Join(source, "first"), string(make([]byte, 8)))
	for i := range 500 {
		write(t, filepath.Join(source, strconv.Itoa(i)), "between")
	}
	write(t, filepath.Join(source, "second"), string(make([]byte, 8)))
	ctx, stop := context.WithCancel(t.Context())
	ended, begun := make(chan error, 1), make(chan error, 1)
	go func() {
		ended <- writeInOrder(ctx, begun, filepath.Join(source, "first"), filepath.Join(source, "second"))
	}()
	defer func() { stop(); within(t, ended) }()
	within(t, begun)
	for range 3 {
		r.take(t, "btrfs")
		first, second := number(t, filepath.Join(r.path, taken, "first")), number(t, filepath.Join(r.path, taken, "second"))
		if first == 0 || second > first || second+1 < first {
			t.Errorf("the first file has %d, and the second one %d", first, second)
		}
		must(t, errors.Join(r.Trash(t.Context(), r.id, taken), r.Discard(t.Context(), r.id, taken)))
		r.purgeAll(t)
	}
}

// writeInOrder writes a number that grows into one file after the other, until ctx ends. begun is
// told after the first time.
func writeInOrder(ctx context.Context, begun chan<- error, paths ...string) error {
	for n := uint64(1); ctx.Err() == nil; n++ {
		for _, path := range paths {
			if err := writeThrough(path, binary.BigEndian.AppendUint64(nil, n)); err != nil {
				begun <- err
				return err
			}
		}
		if n == 1 {
			begun <- nil
		}
	}
	return nil
}

// writeThrough writes over a file, and returns when that is on stable storage.
func writeThrough(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	return errors.Join(err, f.Sync(), f.Close())
}

func number(t *testing.T, path string) uint64 {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return binary.BigEndian.Uint64(text)
}

// within receives an error, which fails the test, as a minute without one does.
func within(t *testing.T, c <-chan error) {
	t.Helper()
	select {
	case err := <-c:
		must(t, err)
	case <-time.After(time.Minute):
		t.Fatal("nothing for a minute")
	}
}
