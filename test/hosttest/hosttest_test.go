package hosttest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// What every host test stands on: under the mount the directory is immutable, on it one can write,
// and the two are different directories.
func TestPoolMount(t *testing.T) {
	for _, fs := range []struct {
		name string
		mib  int
	}{{"ext4", 16}, {"xfs", 320}, {"btrfs", 128}} {
		t.Run(fs.name, func(t *testing.T) {
			dir := PoolMount(t, Mkfs(t, fs.name, fs.mib))
			file := filepath.Join(dir, "file")
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatalf("writing to the mounted pool: %v", err)
			}
			Unmount(t, dir)
			if err := os.WriteFile(file, nil, 0o600); !errors.Is(err, unix.EPERM) {
				t.Fatalf("writing to the bare mount point: %v, want EPERM", err)
			}
		})
	}
}
