package hosttest

import (
	"os"

	"golang.org/x/sys/unix"
)

// KeepCached holds a file's content in the page cache until release is called, so that it can be
// read after its device is gone. Memory pressure and DAMON's proactive reclaim evict pages that
// were only read; mlock(2) keeps them. The mapping pins the mount: release it before unmounting.
func KeepCached(t T, file string) (release func()) {
	t.Helper()
	f, err := os.Open(file)
	Check(t, err)
	defer f.Close()
	info, err := f.Stat()
	Check(t, err)
	memory, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatalf("mapping %s: %v", file, err)
	}
	if err := unix.Mlock(memory); err != nil {
		t.Fatalf("locking %s into memory: %v", file, err)
	}
	return func() { _ = unix.Munmap(memory) }
}
