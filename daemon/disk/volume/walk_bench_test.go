package volume

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// BenchmarkWalks is the time of a purge, and of a relabelling that finds everything as it should
// be, of volumes of different shapes; and the time of the processor, which other programs disturb
// less.
//
//	go test -run - -bench Walks -benchtime 3x ./daemon/disk/volume
func BenchmarkWalks(b *testing.B) {
	for _, shape := range []struct {
		name string
		make func(b *testing.B, dir string)
	}{
		{"20000 files", func(b *testing.B, dir string) { files(b, dir, 20_000) }},
		{"5000 directories of 3 files", func(b *testing.B, dir string) {
			for i := range 5000 {
				below := filepath.Join(dir, strconv.Itoa(i))
				must(b, os.Mkdir(below, 0o755))
				files(b, below, 3)
			}
		}},
		{"5000 levels", func(b *testing.B, dir string) { deep(b, dir, 5000) }},
	} {
		for _, fs := range []string{"tmpfs", "ext4"} {
			b.Run("purge/"+shape.name+"/"+fs, func(b *testing.B) { benchmarkPurge(b, onFilesystem(b, fs), shape.make) })
			b.Run("relabel/"+shape.name+"/"+fs, func(b *testing.B) { benchmarkRelabel(b, onFilesystem(b, fs), shape.make) })
		}
	}
}

func files(b *testing.B, dir string, n int) {
	for i := range n {
		must(b, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600))
	}
}

func onFilesystem(b *testing.B, fs string) *rig {
	if fs == "tmpfs" {
		return onTmpfs(b)
	}
	path := hosttest.PoolMount(b, hosttest.Mkfs(b, fs, 256, "-N", "40000"))
	b.Cleanup(func() { hosttest.Unmount(b, path) })
	return onDisk(b, path)
}

func benchmarkPurge(b *testing.B, r *rig, make func(*testing.B, string)) {
	var used time.Duration
	for range b.N {
		b.StopTimer()
		make(b, r.create(b, pv))
		must(b, r.Trash(b.Context(), r.id, pv))
		before := processor(b)
		b.StartTimer()
		_, err := r.Purge(b.Context(), r.id, pv)
		must(b, err)
		used += processor(b) - before
	}
	b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-µs/op")
}

func benchmarkRelabel(b *testing.B, r *rig, make func(*testing.B, string)) {
	make(b, r.create(b, pv))
	_, err := r.Relabel(b.Context(), r.id, pv, Relabelling{Want: wanted})
	must(b, err)
	before := processor(b)
	b.ResetTimer()
	for range b.N {
		_, err := r.Relabel(b.Context(), r.id, pv, Relabelling{Want: wanted})
		must(b, err)
	}
	b.StopTimer()
	b.ReportMetric(float64((processor(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
	must(b, r.Trash(b.Context(), r.id, pv))
	_, err = r.Purge(b.Context(), r.id, pv)
	must(b, err)
}

// processor is the time that this process used of it.
func processor(b *testing.B) time.Duration {
	var used unix.Rusage
	must(b, unix.Getrusage(unix.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
