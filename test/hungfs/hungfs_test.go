package hungfs

import (
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
			answered := make(chan error, 1)
			go func() {
				var st unix.Statfs_t
				answered <- unix.Statfs(dir, &st)
			}()
			if name == "hold" {
				fs.AwaitHeld()
				_, err := os.Stat(filepath.Join(dir, "none")) // others are answered
				if !os.IsNotExist(err) {
					t.Fatal(err)
				}
			}
			select {
			case err := <-answered:
				t.Fatalf("statfs was answered: %v", err)
			case <-time.After(50 * time.Millisecond): // a hang has no event to wait for
			}
			fs.Resume()
			must(t, <-answered)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
