package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// BenchmarkCreate compares Create with what a bare client does that makes a directory and wants it
// durable: mkdir, fsync of it ("bare"), and fsync of its parent as well ("bare2"). The loop devices
// lie in memory and show the cost of the processor; "disk" is this machine's own, at
// HOSTPATH_BENCH_DIR or /var/tmp.
//
//	go test -run - -bench Create -benchtime 2000x ./daemon/disk/volume
func BenchmarkCreate(b *testing.B) {
	for _, disk := range []struct {
		name string
		dir  func(b *testing.B) string
	}{{"disk", ownDisk}, {"ext4", loop("ext4", 512)}, {"xfs", loop("xfs", 512)}, {"btrfs", loop("btrfs", 512)}} {
		for _, callers := range []int{1, 8, 16} {
			for _, way := range []string{"bare", "bare2", "create"} {
				b.Run(fmt.Sprintf("%s/%d/%s", disk.name, callers, way), func(b *testing.B) {
					dir := disk.dir(b)
					measure(b, callers, ways[way](b, dir))
				})
			}
		}
	}
}

var ways = map[string]func(b *testing.B, dir string) func(i int) error{
	"bare":  func(b *testing.B, dir string) func(int) error { return bare(b, dir, false) },
	"bare2": func(b *testing.B, dir string) func(int) error { return bare(b, dir, true) },
	"create": func(b *testing.B, dir string) func(int) error {
		r := onDisk(b, dir)
		return func(i int) error {
			_, err := r.Create(context.Background(), r.id, spec(pvName(i)))
			return err
		}
	},
}

func bare(b *testing.B, dir string, parentToo bool) func(int) error {
	parent, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { unix.Close(parent) })
	return func(i int) error {
		path := filepath.Join(dir, pvName(i))
		if err := os.Mkdir(path, 0o777); err != nil {
			return err
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := fsync(fd); err != nil || !parentToo {
			return err
		}
		return fsync(parent)
	}
}

func ownDisk(b *testing.B) string {
	base := os.Getenv("HOSTPATH_BENCH_DIR")
	if base == "" {
		base = "/var/tmp"
	}
	dir, err := os.MkdirTemp(base, "volume-bench-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func loop(fstype string, mib int) func(b *testing.B) string {
	return func(b *testing.B) string {
		dir := hosttest.PoolMount(b, hosttest.Mkfs(b, fstype, mib))
		b.Cleanup(func() { hosttest.Unmount(b, dir) })
		return dir
	}
}

// measure makes b.N calls by so many callers and reports how many a second, and the median of one.
func measure(b *testing.B, callers int, call func(int) error) {
	var next atomic.Int64
	var wait sync.WaitGroup
	took := make([]time.Duration, b.N)
	b.ResetTimer()
	for range callers {
		wait.Go(func() {
			for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
				began := time.Now()
				if err := call(int(i)); err != nil {
					b.Error(err)
					return
				}
				took[i] = time.Since(began)
			}
		})
	}
	wait.Wait()
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
	b.ReportMetric(float64(took[b.N/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[b.N*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(0, "ns/op")
}
