package hosttest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// T is the part of testing.TB that is needed here, so that programs can use this package as well.
type T interface {
	Helper()
	Name() string
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// Check ends the test if something failed.
func Check(t T, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// Need returns what a call returned, as in Need(os.ReadFile(name))(t), and ends the test if the call
// failed.
func Need[V any](value V, err error) func(T) V {
	return func(t T) V {
		t.Helper()
		Check(t, err)
		return value
	}
}

// Dir makes an empty directory on the test's tmpfs. The tmpfs supports immutable flags (kernel 6.1
// and later, shmem_fileattr_set in mm/shmem.c).
func Dir(t T) string {
	t.Helper()
	dir, err := os.MkdirTemp(base, strings.Map(plain, t.Name())+"-")
	Check(t, err)
	return dir
}

func plain(r rune) rune {
	if r == '/' || r == ' ' || r == os.PathSeparator {
		return '_'
	}
	return r
}

// Image is a file that holds a filesystem.
type Image struct {
	File string
	Type string // ext4, xfs, btrfs
}

// Mkfs makes an image of the given type and size in MiB; args go to mkfs (labels, UUIDs).
// xfs wants at least 300 MiB (mkfs.xfs(8)).
func Mkfs(t T, fstype string, mib int, args ...string) Image {
	t.Helper()
	return MkfsIn(t, filepath.Join(Dir(t), fstype+".img"), fstype, mib, args...)
}

// MkfsIn is Mkfs in a file.
func MkfsIn(t T, file, fstype string, mib int, args ...string) Image {
	t.Helper()
	Check(t, os.WriteFile(file, nil, 0o600))
	Check(t, os.Truncate(file, int64(mib)<<20))
	run(t, "mkfs."+fstype, slices.Concat([]string{"-q"}, args, []string{file})...)
	return Image{File: file, Type: fstype}
}

// Copy makes another image with what this one holds now. One that is mounted must be frozen
// (fsfreeze(8)). It is a new file, since what was mounted of a file that is written
// anew may live on in another mount namespace, and mount(8) takes its loop device again, with what
// the kernel remembers of the old blocks.
func (i Image) Copy(t T) Image {
	t.Helper()
	file := filepath.Join(Dir(t), i.Type+".img")
	run(t, "cp", "--sparse=always", i.File, file)
	return Image{File: file, Type: i.Type}
}

// Mount mounts the image at dir through a loop device that the kernel detaches by itself with the
// last mount. options are mount(8)'s ("ro", "noatime").
func (i Image) Mount(t T, dir string, options ...string) {
	t.Helper()
	options = append([]string{"loop"}, options...)
	run(t, "mount", "-t", i.Type, "-o", strings.Join(options, ","), i.File, dir)
}

// Loop attaches the file to a loop device and returns its path. The device goes with this process,
// or with the last mount of it after that: detaching one that is open does it by the last close
// (losetup(8)).
func Loop(t T, file string) string {
	t.Helper()
	device := run(t, "losetup", "--find", "--show", file)
	_, err := unix.Open(device, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	run(t, "losetup", "--detach", device)
	if err != nil {
		t.Fatalf("%s: %v", device, err)
	}
	return device
}

// Run runs a command, which must succeed, and returns its output without the space around it.
func Run(t T, name string, args ...string) string { t.Helper(); return run(t, name, args...) }

// UUID is the filesystem's UUID as blkid(8) reads it from the image.
func (i Image) UUID(t T) string {
	t.Helper()
	return run(t, "blkid", "-p", "-s", "UUID", "-o", "value", i.File)
}

// Mount calls mount(8) with these arguments.
func Mount(t T, args ...string) { t.Helper(); run(t, "mount", args...) }

// Unmount unmounts dir, plainly: a mount that stays busy fails the test, because the product may
// not hold one.
func Unmount(t T, dir string) {
	t.Helper()
	err := unix.Unmount(dir, 0)
	for until := time.Now().Add(busyFor); errors.Is(err, unix.EBUSY) && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
		err = unix.Unmount(dir, 0)
	}
	if err != nil {
		t.Fatalf("umount %s: %v", dir, err)
	}
}

// busyFor is how long a process may have a file open in what is unmounted: who looks at a pool for
// a moment is not who keeps it busy.
const busyFor = 30 * time.Second

// UnmountLazy detaches dir as umount -l does.
func UnmountLazy(t T, dir string) {
	t.Helper()
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Fatalf("umount -l %s: %v", dir, err)
	}
}

// SetImmutable sets or clears chattr +i on path.
func SetImmutable(t T, path string, on bool) {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		t.Fatalf("chattr %s: %v", path, err)
	}
	defer unix.Close(fd)
	flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	if err != nil {
		t.Fatalf("chattr %s: %v", path, err)
	}
	flags &^= unix.STATX_ATTR_IMMUTABLE // FS_IMMUTABLE_FL has the same value, linux/fs.h
	if on {
		flags |= unix.STATX_ATTR_IMMUTABLE
	}
	if err := unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags); err != nil {
		t.Fatalf("chattr %s to %s: %v", path, strconv.FormatBool(on), err)
	}
}

// MountPoint makes what an operator makes for a pool, before anything is mounted on it: an immutable
// directory with mode 0700.
func MountPoint(t T) string {
	t.Helper()
	dir := filepath.Join(Dir(t), "pool")
	Check(t, os.Mkdir(dir, 0o700))
	SetImmutable(t, dir, true)
	return dir
}

// PoolMount is MountPoint with a freshly made filesystem mounted on it, whose root is 0700 too.
func PoolMount(t T, image Image) string {
	t.Helper()
	dir := MountPoint(t)
	image.Mount(t, dir)
	Check(t, os.Chmod(dir, 0o700))
	return dir
}

func run(t T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}
