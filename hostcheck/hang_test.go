package hostcheck

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hungfs"
)

const (
	deadline = 10 * time.Millisecond
	slack    = 30 * time.Second // of a busy machine
)

func hungPool(t *testing.T) (*hungfs.FS, *pool) {
	t.Helper()
	dir := filepath.Join(hosttest.Dir(t), "pool")
	must(t, os.Mkdir(dir, 0o700))
	hosttest.SetImmutable(t, dir, true)
	fs := hungfs.Mount(t, dir)
	m := prepare(t, dir, "fast")
	p := &pool{dir: dir, expect: expectPool(dir)}
	p.expect.Remembered = m.ID
	p.Prober = NewProber(p.expect)
	p.sees(t, "before it hangs")
	return fs, p
}

func (p *pool) probeFor(t *testing.T, d time.Duration) Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	began := time.Now()
	r := p.Probe(ctx)
	if took := time.Since(began); took > d+slack {
		t.Fatalf("returned after %s, the deadline was %s", took, d)
	}
	return r
}

// However the filesystem hangs, the report comes by the deadline and says where; a hundred looks
// cost one thread; and when the filesystem responds again, so does the next look.
func TestProbeOfAHungFilesystem(t *testing.T) {
	for name, c := range map[string]struct {
		hang func(*hungfs.FS)
		asks string
	}{
		"silent":  {(*hungfs.FS).Silence, "statfs of "},
		"statfs":  {func(fs *hungfs.FS) { fs.Hold(hungfs.Statfs) }, "statfs of "},
		"getattr": {func(fs *hungfs.FS) { fs.Hold(hungfs.Getattr) }, "opening "},
		"lookup":  {func(fs *hungfs.FS) { fs.Hold(hungfs.Lookup) }, "reading "},
		"open":    {func(fs *hungfs.FS) { fs.Hold(hungfs.Open) }, "reading "},
		"read":    {func(fs *hungfs.FS) { fs.Hold(hungfs.Read) }, "reading "},
	} {
		t.Run(name, func(t *testing.T) {
			fs, p := hungPool(t)
			c.hang(fs)
			threads, goroutines := 0, 0
			for i := range 100 {
				r := p.probeFor(t, deadline)
				if r.Open() || r.Findings[0].Reason != ReasonNotAnswering || len(r.Findings) != 1 {
					t.Fatalf("look %d: %+v", i, r)
				}
				if i == 0 && name != "silent" {
					fs.AwaitHeld() // a slow machine may not have come so far by the first deadline
					continue
				}
				if name != "silent" && !strings.HasPrefix(r.Findings[0].Message, c.asks) {
					t.Fatalf("look %d: %s", i, r.Findings[0].Message)
				}
				if i == 10 {
					threads, goroutines = osThreads(t), runtime.NumGoroutine()
				}
			}
			for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
				if time.Now().After(end) { // one that ends is counted for a moment
					t.Fatalf("%d goroutines after 10 looks, %d after 100", goroutines, runtime.NumGoroutine())
				}
			}
			if now := osThreads(t); now > threads+9 { // the runtime's own come and go; one a look would be 90
				t.Errorf("%d threads after 10 looks, %d after 100", threads, now)
			}
			fs.Resume()
			if r := p.probeFor(t, slack); !r.Open() {
				t.Fatalf("after it came back: %+v", r)
			}
			hosttest.Unmount(t, p.dir) // nothing is held any more
		})
	}
}

// What was learnt before the filesystem stopped is still said: what lies under the mount point
// belongs to another filesystem, which does not hang.
func TestProbeTellsWhatItKnows(t *testing.T) {
	fs, p := hungPool(t)
	fs.Silence()
	hosttest.SetImmutable(t, openDoor(t, p.dir), false)
	p.look.expensive = expensiveFacts{}
	r := p.probeFor(t, 4*time.Second) // in which a busy machine looks, too
	if got := strings.Join(reasons(r), " "); got != "NotAnswering NotImmutable" {
		t.Fatalf("%s: %+v", got, r)
	}
}

// openDoor is another way to the bare directory under a mount point.
func openDoor(t *testing.T, dir string) string {
	door := filepath.Join(hosttest.Dir(t), "door")
	must(t, os.Mkdir(door, 0o700))
	hosttest.Mount(t, "--bind", filepath.Dir(dir), door)
	return filepath.Join(door, filepath.Base(dir))
}

// One pool's hang does not delay another's look, and a mount that is taken away while it hangs is
// reported as it is once the hang ends.
func TestProbeOfAnotherPoolGoesOn(t *testing.T) {
	fs, hung := hungPool(t)
	healthy := newPool(t)
	fs.Silence()
	hung.probeFor(t, deadline)
	for range 100 {
		healthy.sees(t, "beside a hung pool")
	}
	hosttest.UnmountLazy(t, hung.dir)
	fs.Resume()
	if r := hung.probeFor(t, slack); len(r.Findings) == 0 || r.Findings[0].Reason != ReasonNotMounted {
		t.Fatalf("%+v", r)
	}
}

// A look that began before the call is not good enough: the result must be of a moment after it.
// Here the first look opened the pool before it was unmounted, and is held until after.
func TestProbeIsOfAMomentAfterTheCall(t *testing.T) {
	fs, p := hungPool(t)
	fs.Hold(hungfs.Statfs)
	first, second := make(chan Report, 1), make(chan Report, 1)
	go func() { first <- p.Probe(t.Context()) }()
	fs.AwaitHeld()
	hosttest.UnmountLazy(t, p.dir)
	go func() { second <- p.Probe(t.Context()) }()
	for end := time.Now().Add(slack); time.Now().Before(end) && !p.waiting(); {
		runtime.Gosched()
	}
	fs.Resume()
	if r := <-first; !r.Open() {
		t.Errorf("the look that began before: %+v", r)
	}
	if got := reasons(<-second); len(got) != 1 || got[0] != ReasonNotMounted {
		t.Errorf("the look that was asked for after the unmount: %v", got)
	}
}

// waiting reports whether a look waits for another.
func (p *Prober) waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next != nil
}

// A context that is over already, or has no deadline, is no trap.
func TestProbeContexts(t *testing.T) {
	fs, p := hungPool(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if r := p.Probe(context.Background()); !r.Open() {
		t.Fatalf("%+v", r)
	}
	fs.Silence()
	if r := p.Probe(over); r.Open() || r.Findings[0].Reason != ReasonNotAnswering {
		t.Fatalf("%+v", r)
	}
}

func osThreads(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	must(t, err)
	return len(tasks)
}
