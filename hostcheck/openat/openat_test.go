package openat

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func open(t *testing.T, path string) int {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// What Beneath refuses, and with which error.
func TestBeneath(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "a/b"), 0o700), os.Symlink("a", filepath.Join(dir, "link")), os.WriteFile(filepath.Join(dir, "a/file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		"a/b": nil, "a/file": nil, "a/../a/file": nil, ".": nil,
		"..": unix.EXDEV, "a/../..": unix.EXDEV, "/etc": unix.EXDEV, "link": unix.ELOOP, "link/b": unix.ELOOP, "none": unix.ENOENT, "a/file/x": unix.ENOTDIR,
	} {
		fd, err := Open(open(t, dir), path, unix.O_PATH, 0, Beneath)
		if !errors.Is(err, want) || err == nil && want != nil {
			t.Errorf("%s: got %v, want %v", path, err, want)
		}
		if err == nil {
			unix.Close(fd)
		}
	}
	if _, err := Open(open(t, "/"), "proc/self", unix.O_PATH, 0, Beneath); !errors.Is(err, unix.EXDEV) {
		t.Errorf("another mount: got %v, want %v", err, unix.EXDEV)
	}
}

// failing replaces openat2 by one that returns the errors, and then no error; it returns how often
// it was called.
func failing(t *testing.T, errs func(call int) error) *int {
	t.Helper()
	calls := 0
	openat2 = func(int, string, *unix.OpenHow) (int, error) { calls++; return -1, errs(calls) }
	t.Cleanup(func() { openat2 = unix.Openat2 })
	return &calls
}

// An interrupted call is repeated; EAGAIN where it means a rename in the way, and not for ever.
func TestRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		resolve uint64
		errs    func(call int) error
		calls   int
		want    error
	}{
		"interrupted 5,000 times": {0, func(n int) error {
			if n <= 5000 {
				return unix.EINTR
			}
			return nil
		}, 5001, nil},
		"a rename in the way": {Beneath, func(n int) error {
			if n < 100 {
				return unix.EAGAIN
			}
			return nil
		}, 100, nil},
		"a lease, beneath":     {Beneath, func(int) error { return unix.EAGAIN }, tries, unix.EAGAIN},
		"a lease":              {unix.RESOLVE_NO_SYMLINKS, func(int) error { return unix.EAGAIN }, 1, unix.EAGAIN},
		"another error":        {Beneath, func(int) error { return unix.EACCES }, 1, unix.EACCES},
		"both, and then error": {Beneath, func(n int) error { return []error{unix.EINTR, unix.EAGAIN, unix.EINTR, unix.ENOENT}[n-1] }, 4, unix.ENOENT},
	} {
		t.Run(name, func(t *testing.T) {
			calls := failing(t, c.errs)
			if _, err := Open(unix.AT_FDCWD, "x", 0, 0, c.resolve); !errors.Is(err, c.want) || err == nil && c.want != nil || *calls != c.calls {
				t.Errorf("got %v after %d calls, want %v after %d", err, *calls, c.want, c.calls)
			}
		})
	}
}

// Renames that never pause do not keep a path with ".." from being opened.
func TestRenamesInTheWay(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "a/b"), 0o700), os.Mkdir(filepath.Join(dir, "0"), 0o700)); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for names := []string{filepath.Join(dir, "0"), filepath.Join(dir, "1")}; ; names[0], names[1] = names[1], names[0] {
			select {
			case <-stop:
				return
			default:
				_ = os.Rename(names[0], names[1])
			}
		}
	}()
	root := open(t, dir)
	for range 2000 {
		fd, err := Open(root, "a/b/../../a/b", unix.O_PATH, 0, Beneath)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
	}
	close(stop)
	<-done
}
