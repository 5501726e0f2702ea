package mounts

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mkdir(t testing.TB, parts ...string) string {
	t.Helper()
	dir := filepath.Join(parts...)
	must(t, os.MkdirAll(dir, 0o755))
	return dir
}

func tmpfs(t testing.TB, dir string) { t.Helper(); hosttest.Mount(t, "-t", "tmpfs", "t", dir) }

func open(t testing.TB, path string) int {
	t.Helper()
	fd, err := Open(path, unix.O_PATH)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func table(t testing.TB) []Mount {
	t.Helper()
	mounts, err := Read()
	must(t, err)
	return mounts
}

// Covering must say what the kernel's own path walk says, however the mounts lie.
func TestCoveringIsTheKernels(t *testing.T) {
	d := hosttest.Dir(t)
	odd := mkdir(t, d, "a b\tc\nd\\e\\040f\xff#")
	tmpfs(t, odd)
	deep := mkdir(t, d, "x/y/z")
	tmpfs(t, deep)
	over := mkdir(t, d, "x")
	stacked := mkdir(t, d, "s")
	tmpfs(t, stacked)
	below := mkdir(t, stacked, "below")
	tmpfs(t, below)
	tmpfs(t, stacked)
	onUpper := mkdir(t, stacked, "below")
	bound := mkdir(t, d, "bound")
	hosttest.Mount(t, "--rbind", d, bound)
	paths := []string{"/", "/proc", d, odd, deep, over, stacked, below, onUpper, bound, filepath.Join(bound, "x/y/z"), "/proc/self"}
	compare := func(when string) {
		for _, path := range paths {
			fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if errors.Is(err, unix.ENOENT) {
				continue
			}
			must(t, err)
			want, err := IDOf(fd)
			must(t, err)
			must(t, unix.Close(fd))
			got, ok := Covering(table(t), path)
			if !ok || got.ID != want {
				t.Errorf("%s: %q lies on %+v, the kernel says %d", when, path, got, want)
			}
		}
	}
	compare("before")
	tmpfs(t, over) // hides deep
	mkdir(t, deep)
	compare("hidden")
	hosttest.UnmountLazy(t, over)
	compare("shown again")
	hosttest.Unmount(t, deep)
	compare("unmounted")
}

func TestIdentity(t *testing.T) {
	d := hosttest.Dir(t)
	image := hosttest.Mkfs(t, "ext4", 16)
	pool, bound := mkdir(t, d, "pool"), mkdir(t, d, "bound")
	identity := func(path string) Identity {
		t.Helper()
		fd, err := Open(path, unix.O_PATH|unix.O_DIRECTORY)
		must(t, err)
		defer unix.Close(fd)
		id, err := IdentityOf(fd)
		must(t, err)
		return id
	}
	bare := identity(pool)
	image.Mount(t, pool)
	mounted := identity(pool)
	if again := identity(pool); again != mounted {
		t.Fatalf("the same directory: %+v, then %+v", mounted, again)
	}
	hosttest.Mount(t, "-o", "remount,ro", pool)
	if again := identity(pool); again != mounted {
		t.Fatalf("remounting changed %+v to %+v", mounted, again)
	}
	hosttest.Mount(t, "--bind", pool, bound)
	seen := map[Identity]string{bare: "bare", mounted: "mounted"}
	fresh := func(name, path string) {
		id := identity(path)
		if old := seen[id]; old != "" {
			t.Errorf("%s has the identity of %s: %+v", name, old, id)
		}
		seen[id] = name
	}
	fresh("another directory", mkdir(t, d, "other"))
	fresh("bind mount", bound)
	hosttest.Unmount(t, bound)
	hosttest.Unmount(t, pool)
	if again := identity(pool); again != bare {
		t.Errorf("the bare directory: %+v, then %+v", bare, again)
	}
	image.Mount(t, pool)
	fresh("the same filesystem mounted again", pool)
}

func TestImmutable(t *testing.T) {
	d := hosttest.Dir(t)
	for _, want := range []bool{false, true} {
		hosttest.SetImmutable(t, d, want)
		got, err := Immutable(open(t, d))
		if err != nil || got != want {
			t.Fatalf("got %v, %v, want %v", got, err, want)
		}
	}
	hosttest.SetImmutable(t, d, false)
	if got, err := Immutable(open(t, "/proc")); !errors.Is(err, ErrCannotTell) || got {
		t.Fatalf("proc: %v, %v, want ErrCannotTell", got, err)
	}
	if _, err := Immutable(-1); !errors.Is(err, unix.EBADF) {
		t.Fatalf("a closed descriptor: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	d := hosttest.Dir(t)
	mkdir(t, d, "dir")
	must(t, os.Symlink("dir", filepath.Join(d, "link")))
	must(t, os.Symlink(d, filepath.Join(d, "dir/up")))
	must(t, os.WriteFile(filepath.Join(d, "file"), nil, 0o600))
	inner := mkdir(t, d, "dir/inner")
	tmpfs(t, inner)
	root := open(t, d)
	for path, want := range map[string]error{
		"link": unix.ELOOP, "dir/up": unix.ELOOP, "link/inner": unix.ELOOP, "none": unix.ENOENT, "file/x": unix.ENOTDIR, "file": nil, "dir": nil,
	} {
		if _, err := Open(filepath.Join(d, path), unix.O_PATH); !errors.Is(err, want) {
			t.Errorf("Open %s: %v, want %v", path, err, want)
		}
		if _, err := OpenBeneath(root, path, unix.O_PATH); !errors.Is(err, want) {
			t.Errorf("OpenBeneath %s: %v, want %v", path, err, want)
		}
	}
	for _, path := range []string{"..", "dir/../..", d, "/", "dir/inner"} {
		if _, err := OpenBeneath(root, path, unix.O_PATH); !errors.Is(err, unix.EXDEV) {
			t.Errorf("OpenBeneath %s: %v, want EXDEV", path, err)
		}
	}
}

func openDescriptors(t testing.TB) int {
	t.Helper()
	runtime.GC()
	list, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(list)
}
