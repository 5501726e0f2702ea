package hungfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// It must be a filesystem before it may hang.
func TestFilesystem(t *testing.T) {
	dir := hosttest.Dir(t)
	Mount(t, dir)
	must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "a/file"), []byte("hello"), 0o600))
	must(t, os.Rename(filepath.Join(dir, "a/file"), filepath.Join(dir, "a/b/file")))
	data, err := os.ReadFile(filepath.Join(dir, "a/b/file"))
	must(t, err)
	if string(data) != "hello" {
		t.Fatalf("read %q", data)
	}
	if err := os.Remove(filepath.Join(dir, "a/b")); err == nil {
		t.Fatal("removed a directory with a file in it")
	}
	must(t, os.Chmod(filepath.Join(dir, "a"), 0o750))
	info, err := os.Stat(filepath.Join(dir, "a"))
	must(t, err)
	if info.Mode().Perm() != 0o750 {
		t.Fatalf("mode %v", info.Mode())
	}
	must(t, os.RemoveAll(filepath.Join(dir, "a")))
	left, err := os.ReadDir(dir)
	must(t, err)
	if len(left) != 0 {
		t.Fatalf("left: %v", left)
	}
}

// A filesystem that does not know the flags of rename, hard links or attributes is one of which the
// kernel says so in its own words; one that refuses says what it was told to.
func TestRefuses(t *testing.T) {
	dir := hosttest.Dir(t)
	fs := Mount(t, dir)
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	must(t, os.WriteFile(one, []byte("1"), 0o600))
	must(t, os.Link(one, two))
	if err := os.Link(one, two); !errors.Is(err, unix.EEXIST) {
		t.Errorf("a second link: %v", err)
	}
	fs.Fail(unix.ENOSYS, Rename2, Link)
	fs.Fail(unix.EACCES, Mkdir)
	for name, c := range map[string]struct{ got, want error }{
		"a flag of rename": {unix.Renameat2(unix.AT_FDCWD, one, unix.AT_FDCWD, one+"x", unix.RENAME_NOREPLACE), unix.EINVAL},
		"a hard link":      {os.Link(one, one+"x"), unix.EPERM},
		"an attribute":     {unix.Setxattr(one, "user.a", []byte("b"), 0), unix.EOPNOTSUPP},
		"a directory":      {os.Mkdir(one+"x", 0o700), unix.EACCES},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	fs.Fail(0, Mkdir)
	must(t, os.Mkdir(one+"x", 0o700))
}

func TestQuota(t *testing.T) {
	const key = "ceph.quota.max_bytes"
	dir := hosttest.Dir(t)
	Mount(t, dir).TakeQuotas()
	must(t, unix.Setxattr(dir, key, []byte("1048576"), 0))
	buffer := make([]byte, 64)
	n, err := unix.Getxattr(dir, key, buffer)
	if string(buffer[:max(n, 0)]) != "1048576" {
		t.Errorf("%q, %v", buffer[:max(n, 0)], err)
	}
	if err := unix.Setxattr(dir, "user.a", []byte("b"), 0); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("another attribute: %v", err)
	}
}

func TestHangs(t *testing.T) {
	hang := map[string]func(*FS){
		"silence": (*FS).Silence,
		"hold":    func(fs *FS) { fs.Hold(Statfs) },
	}
	for name, stop := range hang {
		t.Run(name, func(t *testing.T) {
			dir := hosttest.Dir(t)
			fs := Mount(t, dir)
			stop(fs)
			returned := make(chan error, 1)
			go func() {
				var st unix.Statfs_t
				returned <- unix.Statfs(dir, &st)
			}()
			if name == "hold" {
				fs.AwaitHeld()
				_, err := os.Stat(filepath.Join(dir, "none")) // others get a response
				if !os.IsNotExist(err) {
					t.Fatal(err)
				}
			}
			select {
			case err := <-returned:
				t.Fatalf("statfs returned: %v", err)
			case <-time.After(50 * time.Millisecond): // a hang has no event to wait for
			}
			fs.Resume()
			must(t, <-returned)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	hosttest.Check(t, err)
}
