package subvolume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// mounted is a directory with a new filesystem of a type.
func mounted(t *testing.T, fstype string) string {
	t.Helper()
	if fstype == "tmpfs" {
		return hosttest.Dir(t) // it is on one
	}
	dir := hosttest.PoolMount(t, hosttest.Mkfs(t, fstype, 160))
	t.Cleanup(func() { hosttest.Unmount(t, dir) })
	return dir
}

func open(t *testing.T, elem ...string) int {
	t.Helper()
	fd, err := unix.Open(filepath.Join(elem...), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func write(elem ...string) error {
	return os.WriteFile(filepath.Join(elem...), []byte("text"), 0o600)
}

func names(t *testing.T, elem ...string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(elem...))
	must(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func nestedIn(t *testing.T, fd, want int) {
	t.Helper()
	if n, err := Nested(fd); n != want || err != nil {
		t.Errorf("%d subvolumes inside: %v, want %d", n, err, want)
	}
}

// The structures have the layout of linux/btrfs.h, and the sizes in the numbers of the requests.
func TestLayout(t *testing.T) {
	var a arguments
	var n nested
	for name, c := range map[string]struct{ got, want uintptr }{
		"offset of vol_args_v2.flags": {unsafe.Offsetof(a.flags), 16},
		"offset of vol_args_v2.name":  {unsafe.Offsetof(a.name), 56},
		"size of vol_args_v2":         {unsafe.Sizeof(a), 4096},
		"offset of num_items":         {unsafe.Offsetof(n.n), 8 + 16*255},
		"size of rootref_args":        {unsafe.Sizeof(n), 4096},
		"size that creates":           {RequestCreate >> 16 & 0x3fff, unsafe.Sizeof(a)},
		"size that takes a snapshot":  {RequestSnapshot >> 16 & 0x3fff, unsafe.Sizeof(a)},
		"size that lists":             {RequestNested >> 16 & 0x3fff, unsafe.Sizeof(n)},
		"size that reads flags":       {RequestGetFlags >> 16 & 0x3fff, 8},
		"size that sets flags":        {RequestSetFlags >> 16 & 0x3fff, 8},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", name, c.got, c.want)
		}
	}
}

// A subvolume is made empty in a directory, is one, and goes by rmdir(2).
func TestCreate(t *testing.T) {
	at := mounted(t, "btrfs")
	must(t, os.Mkdir(at+"/plain", 0o755))
	dir := open(t, at, "plain")
	must(t, Create(dir, "one"), write(at, "file"))
	if err := Create(dir, "one"); !errors.Is(err, unix.EEXIST) {
		t.Errorf("once more: %v", err)
	}
	for name, want := range map[string]bool{"": true, "plain": false, "plain/one": true, "file": false} {
		if is, err := Is(open(t, at, name)); is != want || err != nil {
			t.Errorf("%q is a subvolume: %t, %v", name, is, err)
		}
	}
	if left := names(t, at, "plain/one"); left != nil {
		t.Errorf("a new one has %q", left)
	}
	must(t, write(at, "plain/one/file"))
	if err := unix.Rmdir(at + "/plain/one"); !errors.Is(err, unix.ENOTEMPTY) {
		t.Errorf("one with a file is removed: %v", err)
	}
	must(t, os.Remove(at+"/plain/one/file"), unix.Rmdir(at+"/plain/one"))
	if left := names(t, at, "plain"); left != nil {
		t.Errorf("left is %q", left)
	}
}

// A snapshot has what the subvolume had at one moment, can be written to, and does not change with
// it. A subvolume inside is an empty directory there.
func TestSnapshot(t *testing.T) {
	at := mounted(t, "btrfs")
	top := open(t, at)
	must(t, Create(top, "source"))
	source := open(t, at, "source")
	must(t, Create(source, "inside"), write(at, "source/before"), write(at, "source/inside/file"))
	must(t, Snapshot(top, "snapshot", source))
	must(t, write(at, "source/after"), write(at, "snapshot/own"))
	if err := Snapshot(top, "snapshot", source); !errors.Is(err, unix.EEXIST) {
		t.Errorf("once more: %v", err)
	}
	for dir, want := range map[string][]string{
		"snapshot": {"before", "inside", "own"}, "snapshot/inside": nil, "source": {"after", "before", "inside"}, "source/inside": {"file"},
	} {
		if got := names(t, at, dir); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", dir, got, want)
		}
	}
	if text, err := os.ReadFile(at + "/snapshot/before"); string(text) != "text" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	for name, want := range map[string]bool{"snapshot": true, "snapshot/inside": false} {
		if is, err := Is(open(t, at, name)); is != want || err != nil {
			t.Errorf("%q is a subvolume: %t, %v", name, is, err)
		}
	}
	nestedIn(t, source, 1)
	nestedIn(t, open(t, at, "snapshot"), 0)
}

// There is no snapshot of what is no subvolume, nor of one of another filesystem, and nothing is
// left of the attempt.
func TestNoSnapshot(t *testing.T) {
	at, other := mounted(t, "btrfs"), mounted(t, "btrfs")
	must(t, os.Mkdir(at+"/plain", 0o755), write(at, "file"))
	for of, want := range map[string]error{
		at + "/plain": ErrNone, at + "/file": ErrNone, mounted(t, "ext4"): ErrNone, mounted(t, "tmpfs"): ErrNone, other: unix.EXDEV,
	} {
		if err := Snapshot(open(t, at), "snapshot", open(t, of)); !errors.Is(err, want) {
			t.Errorf("of %s: %v, want %v", of, err, want)
		}
	}
	if left := names(t, at); !slices.Equal(left, []string{"file", "plain"}) {
		t.Errorf("left is %q", left)
	}
	if err := Snapshot(open(t, at), "snapshot", -1); !errors.Is(err, unix.EBADF) {
		t.Error(err)
	}
}

// A name is one element of a path, which no more is made of than of mkdir(2)'s.
func TestNames(t *testing.T) {
	at := mounted(t, "btrfs")
	top := open(t, at)
	must(t, os.Mkdir(at+"/sub", 0o755))
	for name, want := range map[string]error{
		"sub/one": unix.EINVAL, "/one": unix.EINVAL, "../one": unix.EINVAL, ".": unix.EEXIST, "..": unix.EEXIST, "sub": unix.EEXIST, "one\x00two": unix.EINVAL,
		strings.Repeat("n", 256): unix.ENAMETOOLONG, strings.Repeat("n", nameMax+1): unix.ENAMETOOLONG,
	} {
		err, of := Create(top, name), Snapshot(top, name, top)
		if !errors.Is(err, want) || !errors.Is(of, want) {
			t.Errorf("%.10q: %v, and a snapshot: %v, want %v", name, err, of, want)
		}
	}
	if left := names(t, at); !slices.Equal(left, []string{"sub"}) || names(t, at, "sub") != nil {
		t.Errorf("left is %q", left)
	}
	must(t, Create(top, strings.Repeat("n", 255)))
}

// Other filesystems have no subvolumes.
func TestOtherFilesystems(t *testing.T) {
	for _, fstype := range []string{"ext4", "tmpfs"} {
		at := mounted(t, fstype)
		before := names(t, at)
		dir := open(t, at)
		if is, err := Is(dir); is || err != nil {
			t.Errorf("%s: a subvolume: %t, %v", fstype, is, err)
		}
		_, err := Nested(dir)
		for call, err := range map[string]error{"create": Create(dir, "one"), "nested": err} {
			if !errors.Is(err, unix.ENOTTY) {
				t.Errorf("%s: %s: %v", fstype, call, err)
			}
		}
		if left := names(t, at); MakeWritable(dir) || !slices.Equal(left, before) {
			t.Errorf("%s: made writable, or left is %q", fstype, left)
		}
	}
	if is, err := Is(-1); is || !errors.Is(err, unix.EBADF) {
		t.Errorf("a subvolume: %t, %v", is, err)
	}
}

// Subvolumes in a subvolume's directories are counted, those inside them are not.
func TestNested(t *testing.T) {
	at := mounted(t, "btrfs")
	must(t, Create(open(t, at), "one"))
	one := open(t, at, "one")
	nestedIn(t, one, 0)
	must(t, os.Mkdir(at+"/one/sub", 0o755))
	must(t, Create(one, "two"), Create(open(t, at, "one/sub"), "three"))
	must(t, Create(open(t, at, "one/two"), "four"))
	nestedIn(t, one, 2)
	for i := range listed {
		must(t, Create(one, fmt.Sprint(i)))
	}
	nestedIn(t, one, listed)
}

// A read-only subvolume is made writable, once; a plain directory in it is left alone.
func TestMakeWritable(t *testing.T) {
	at := mounted(t, "btrfs")
	top := open(t, at)
	must(t, Create(top, "one"), os.Mkdir(at+"/one/plain", 0o755))
	one := open(t, at, "one")
	if MakeWritable(one) {
		t.Error("it was not read-only")
	}
	flags := uint64(readOnly)
	must(t, openat.Ioctl(one, RequestSetFlags, unsafe.Pointer(&flags)), Snapshot(top, "snapshot", one))
	if err := write(at, "one/file"); !errors.Is(err, unix.EROFS) {
		t.Errorf("written to a read-only one: %v", err)
	}
	must(t, write(at, "snapshot/file")) // a snapshot of it may be changed
	if MakeWritable(open(t, at, "one/plain")) {
		t.Error("by a directory in it")
	}
	if !MakeWritable(one) || MakeWritable(one) {
		t.Error("not made writable, or twice")
	}
	must(t, write(at, "one/file"))
}

// None of it takes CAP_SYS_ADMIN, which the daemon does not have.
func TestWithoutAdmin(t *testing.T) {
	at := mounted(t, "btrfs")
	top := open(t, at)
	hosttest.Without(t, func() {
		err := Create(top, "one")
		fd, wrong := unix.Open(at+"/one", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		defer unix.Close(fd)
		n, uncounted := Nested(fd)
		if err := errors.Join(err, wrong, uncounted, Snapshot(top, "snapshot", fd), unix.Rmdir(at+"/one")); err != nil || n != 0 {
			t.Errorf("%d inside: %v", n, err)
		}
	}, unix.CAP_SYS_ADMIN)
}
