package hosttest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// Of two files whose device is gone, the locked one can still be read after everything else was
// evicted.
func TestKeepCached(t *testing.T) {
	image := Mkfs(t, "ext4", 16)
	dir := PoolMount(t, image)
	kept, evicted := filepath.Join(dir, "kept"), filepath.Join(dir, "evicted")
	for _, file := range []string{kept, evicted} {
		Check(t, os.WriteFile(file, []byte("content"), 0o600))
	}
	unix.Sync()
	defer KeepCached(t, kept)()
	Check(t, os.Truncate(image.File, 0))
	for _, file := range []string{kept, evicted} {
		evict(t, file)
	}
	if content, err := os.ReadFile(kept); err != nil || string(content) != "content" {
		t.Errorf("the file that is kept in the cache: %q, %v", content, err)
	}
	if _, err := os.ReadFile(evicted); !errors.Is(err, unix.EIO) {
		t.Errorf("the file that was evicted: %v, want EIO", err)
	}
}

func evict(t *testing.T, file string) {
	f, err := os.Open(file)
	Check(t, err)
	defer f.Close()
	Check(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
}
