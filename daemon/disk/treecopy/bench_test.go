package treecopy

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// BenchmarkCopy is the time of a reflink copy of 20,000 files of 4 KiB, beside cp -a --reflink=always.
//
//	go test -run - -bench Copy -benchtime 3x ./daemon/disk/treecopy
func BenchmarkCopy(b *testing.B) {
	for _, fstype := range []string{"xfs", "btrfs"} {
		dir := on(b, fstype)
		for i := range 200 {
			below := filepath.Join(dir, "source", fmt.Sprint(i))
			must(b, os.MkdirAll(below, 0o755))
			for j := range 100 {
				must(b, os.WriteFile(filepath.Join(below, fmt.Sprint(j)), bytes.Repeat([]byte("data"), 1000), 0o600))
			}
		}
		unix.Sync()
		each := func(name string, copy func()) {
			b.Run(fstype+"/"+name, func(b *testing.B) {
				for range b.N {
					copy()
					b.StopTimer()
					must(b, os.RemoveAll(filepath.Join(dir, "copy")))
					unix.Sync()
					b.StartTimer()
				}
			})
		}
		each("treecopy", func() { _, err := copyTree(b, dir, Options{}); must(b, err) })
		each("cp", func() {
			hosttest.Run(b, "cp", "-a", "--reflink=always", filepath.Join(dir, "source"), filepath.Join(dir, "copy"))
		})
	}
}
