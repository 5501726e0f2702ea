package volume

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hungfs"
)

// filled writes a file that takes this many bytes, with nothing before them.
func filled(t *testing.T, path string, from, bytes int64) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	f, err := os.Create(path)
	must(t, err)
	_, err = f.WriteAt([]byte(strings.Repeat("data", int(bytes/4))), from)
	must(t, errors.Join(err, f.Sync(), f.Close()))
}

// du is what du(1) says of a directory, in bytes, and how many files and directories find(1) has.
func du(t *testing.T, dir string) usage.Measured {
	t.Helper()
	text, _, _ := strings.Cut(hosttest.Run(t, "du", "-sx", "--block-size=1", dir), "\t")
	bytes, err := strconv.ParseUint(text, 10, 64)
	must(t, err)
	inodes := map[string]bool{}
	found := hosttest.Run(t, "find", dir, "-xdev", "-printf", "%D:%i\n")
	for line := range strings.Lines(found) {
		inodes[strings.TrimSpace(line)] = true
	}
	return usage.Measured{Bytes: bytes, Inodes: uint64(len(inodes))}
}

// A volume takes its blocks: of a sparse file those that were written, of a file with several names
// those of one, and nothing of what links lead to or of what is mounted in it. A plain umount works
// afterwards.
func TestMeasure(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fs, func(t *testing.T) {
			mount := hosttest.PoolMount(t, hosttest.Mkfs(t, fs, 400))
			r := onDisk(t, mount)
			r.measureFor = time.Minute // the machine may be busy
			dir := r.create(t, pv)
			in := func(name string) string { return filepath.Join(dir, name) }
			filled(t, in("a/large"), 0, 8<<20)
			filled(t, in("a/sparse"), 1<<30, 1<<20)
			must(t, os.Mkdir(in("b"), 0o755))
			for _, name := range []string{"b/same", "c"} {
				must(t, os.Link(in("a/large"), in(name)))
			}
			outside := filepath.Join(mount, "outside")
			filled(t, outside, 0, 16<<20)
			must(t, errors.Join(os.Symlink(outside, in("link")), os.Symlink(mount, in("up")),
				unix.Mkfifo(in("fifo"), 0o600), os.Mkdir(in("mounted"), 0o755),
				os.WriteFile(in("over"), nil, 0o600)))
			want := du(t, dir)
			hosttest.Mount(t, "-t", "tmpfs", "tmpfs", in("mounted"))
			filled(t, in("mounted/theirs"), 0, 4<<20)
			hosttest.Mount(t, "--bind", outside, in("over"))
			got, err := r.Measure(t.Context(), r.id, pv)
			must(t, err)
			hosttest.Unmount(t, in("mounted"))
			hosttest.Unmount(t, in("over"))
			// What is mounted on hides an empty directory and an empty file.
			hidden := uint64(2)
			if got.Estimate || got.Inodes != want.Inodes-hidden || got.Bytes > want.Bytes ||
				got.Bytes < want.Bytes-4096 || got.Bytes < 9<<20 || got.Bytes > 10<<20 {
				t.Errorf("%+v, du has %+v", got, want)
			}
			if age := time.Since(got.At); age < 0 || age > time.Minute {
				t.Errorf("measured %s ago", age)
			}
			sample, err := r.Sample(t.Context(), r.id, pv)
			must(t, err)
			if sample.Probes < 2 {
				t.Errorf("%+v", sample)
			}
			hosttest.Unmount(t, mount)
		})
	}
}

// A file that has names outside the volume is counted whole by a walk.
func TestMeasureLinkedOutside(t *testing.T) {
	r := onTmpfs(t)
	dir := r.create(t, pv)
	filled(t, filepath.Join(r.path, "outside"), 0, 1<<20)
	must(t, os.Link(filepath.Join(r.path, "outside"), filepath.Join(dir, "inside")))
	got, err := r.Measure(t.Context(), r.id, pv)
	if must(t, err); got.Bytes < 1<<20 || got.Bytes > 2<<20 || got.Inodes != 2 {
		t.Errorf("%+v", got)
	}
}

// Of a volume with many files a walk sees a part, and says so. Probes tell what the whole takes,
// within a quarter here: the directories are of different sizes and depths.
func TestMeasureManyFiles(t *testing.T) {
	const files = 60_000
	r := onDisk(t, hosttest.PoolMount(t, hosttest.Mkfs(t, "ext4", 900, "-N", "150000")))
	dir := r.create(t, pv)
	content := make([]byte, 16<<10)
	for i, in := 0, ""; i < files; i++ {
		if i%100 == 0 {
			in = filepath.Join(dir, fmt.Sprint(i%7), fmt.Sprint(i%1000/100), fmt.Sprint(i))
			must(t, os.MkdirAll(in, 0o755))
		}
		must(t, os.WriteFile(filepath.Join(in, strconv.Itoa(i)), content[:i%len(content)], 0o600))
	}
	must(t, os.Link(filepath.Join(dir, "0/0/0/0"), filepath.Join(dir, "again")))
	unix.Sync()
	want := du(t, dir)
	seen, err := r.Measure(t.Context(), r.id, pv)
	must(t, err)
	if !seen.Estimate || seen.Inodes == 0 || seen.Inodes > measuredMost ||
		seen.Bytes >= want.Bytes {
		t.Errorf("a walk says %+v, du %+v", seen, want)
	}
	var all usage.Sample
	calls := 0
	for ; !all.Enough(); calls++ {
		one, err := r.Sample(t.Context(), r.id, pv)
		must(t, err)
		all = all.Plus(one)
	}
	got := all.Estimate(seen)
	t.Logf("du %+v; walked %+v; %d calls, %d probes of %d entries: %+v",
		want, seen, calls, all.Probes, all.Entries, got)
	for _, got := range []usage.Measured{got, all.Estimate(usage.Measured{})} {
		if !got.Estimate || off(got.Bytes, want.Bytes) > 0.25 ||
			off(got.Inodes, want.Inodes) > 0.25 {
			t.Errorf("the estimate is %+v, du has %+v", got, want)
		}
	}
}

// A call that has no time left says what it saw until then, and makes one probe, also of a
// directory that is read longer: the probe counts what it has read of that.
func TestMeasureIsShort(t *testing.T) {
	r := onTmpfs(t)
	dir := r.create(t, pv)
	for i := range 20_000 {
		must(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600))
	}
	r.measureFor = 0
	m, err := r.Measure(t.Context(), r.id, pv)
	if must(t, err); !m.Estimate || m.Inodes > 0 {
		t.Errorf("%+v", m)
	}
	s, err := r.Sample(t.Context(), r.id, pv)
	if must(t, err); s.Probes != 1 || s.Inodes < ofEach || s.Inodes > 10_000 {
		t.Errorf("%+v", s)
	}
	r.measureFor = time.Minute
	s, err = r.Sample(t.Context(), r.id, pv)
	if must(t, err); !s.Enough() || off(uint64(s.Inodes)/uint64(s.Probes), 20_001) > 0.001 {
		t.Errorf("with time: %+v", s)
	}
}

// Files with several names count once in an estimate, too, whichever of them is found.
func TestSampleLinks(t *testing.T) {
	r := onTmpfs(t)
	dir := r.create(t, pv)
	for i := range 1000 {
		in := filepath.Join(dir, fmt.Sprint("a", i/50), strconv.Itoa(i))
		filled(t, in, 0, 4096)
		other := filepath.Join(dir, fmt.Sprint("b", i%20))
		must(t, os.MkdirAll(other, 0o755))
		must(t, os.Link(in, filepath.Join(other, strconv.Itoa(i))))
	}
	r.measureFor = time.Minute
	s, err := r.Sample(t.Context(), r.id, pv)
	must(t, err)
	got, want := s.Estimate(usage.Measured{}), du(t, dir)
	if !s.Enough() || want.Inodes != 1041 || off(got.Inodes, want.Inodes) > 0.1 ||
		off(got.Bytes, want.Bytes) > 0.1 {
		t.Errorf("%+v: %+v, du has %+v", s, got, want)
	}
}

// off is by which part a number differs from another.
func off(got, want uint64) float64 { return math.Abs(float64(got)/float64(want) - 1) }

// Files that come and go while they are counted are no error; what stays is counted.
func TestMeasureMeanwhile(t *testing.T) {
	r := onTmpfs(t)
	r.measureFor = time.Minute
	dir := r.create(t, pv)
	filled(t, filepath.Join(dir, "stays"), 0, 1<<20)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			below := filepath.Join(dir, fmt.Sprint("d", n%5))
			_ = os.MkdirAll(below, 0o755)
			_ = os.WriteFile(filepath.Join(below, "goes"), []byte("data"), 0o600)
			_ = os.RemoveAll(filepath.Join(dir, fmt.Sprint("d", (n+2)%5)))
		}
	}()
	for range 300 {
		got, err := r.Measure(t.Context(), r.id, pv)
		if must(t, err); got.Estimate || got.Bytes < 1<<20 || got.Bytes > 2<<20 || got.Inodes < 2 {
			t.Fatalf("%+v", got)
		}
		if _, err := r.probeOnce(t, pv); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-stopped
}

// probeOnce is one probe.
func (r *rig) probeOnce(t *testing.T, pv string) (bytes float64, err error) {
	err = r.measuring(t.Context(), r.id, pv, func(c measuring) error {
		p := prober{measuring: c, buffer: make([]byte, probePiece)}
		err := p.down()
		bytes = p.bytes
		return err
	})
	return bytes, err
}

// What is not a volume in the pool is not read, and another directory in the pool's place is none.
func TestMeasureRefuses(t *testing.T) {
	r := onTmpfs(t)
	dir := r.create(t, pv)
	foreign := filepath.Join(r.path, pvName(7))
	must(t, os.Mkdir(foreign, 0o755))
	other := mounts.Identity{}
	for name, c := range map[string]struct {
		pv   string
		id   mounts.Identity
		do   func()
		want error
	}{
		"no record":         {pvName(7), r.id, func() {}, ErrNotRecorded},
		"a path":            {"../" + pvName(7), r.id, func() {}, nil},
		"another directory": {pv, other, func() {}, ErrDirectoryReplaced},
		"a mount on it": {pv, r.id, func() {
			hosttest.Mount(t, "-t", "tmpfs", "tmpfs", dir)
			t.Cleanup(func() { hosttest.Unmount(t, dir) })
		}, ErrForeign},
	} {
		c.do()
		m, err := r.Measure(t.Context(), c.id, c.pv)
		s, also := r.Sample(t.Context(), c.id, c.pv)
		for _, err := range []error{err, also} {
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
		if m != (usage.Measured{}) || s != (usage.Sample{}) {
			t.Errorf("%s: %+v, %+v", name, m, s)
		}
	}
}

// A volume in the trash is not read.
func TestMeasureInTrash(t *testing.T) {
	r := onTmpfs(t)
	r.create(t, pv)
	must(t, r.Trash(t.Context(), r.id, pv))
	if _, err := r.Measure(t.Context(), r.id, pv); !errors.Is(err, ErrPlace) {
		t.Error(err)
	}
}

// A directory in a volume that does not respond closes no pool, as it may be one bad sector, and
// there is no second call that hangs. The first ends when the filesystem responds again.
func TestMeasureWaits(t *testing.T) {
	dir := filepath.Join(hosttest.Dir(t), "pool")
	must(t, os.Mkdir(dir, 0o700))
	fs := hungfs.Mount(t, dir)
	r := onDisk(t, dir)
	write(t, filepath.Join(r.create(t, pv), "d", "file"), "x")
	fs.Hold(hungfs.Readdir)
	done := make(chan error, 1)
	go func() { _, err := r.Measure(t.Context(), r.id, pv); done <- err }()
	fs.AwaitHeld()
	if w := r.Waiting(0); w != (Waiting{}) {
		t.Errorf("it closes the pool: %+v", w)
	}
	if _, err := r.Sample(t.Context(), r.id, pv); !errors.Is(err, errMeasures) {
		t.Errorf("beside it: %v", err)
	}
	fs.Resume()
	must(t, <-done)
	_, err := r.Sample(t.Context(), r.id, pv)
	must(t, err)
}
