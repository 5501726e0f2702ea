package hang

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// usage is how much a process has of each thing.
type usage map[string]int

// bound is how much more of each is still the same. Threads and memory of a Go program move by
// some.
var bound = usage{"KiB of memory": 16 << 10, "threads": 6, "descriptors": 4, "goroutines": 16}

func (e *environment) usage() usage {
	status := harness.Need(process.Status(e.Daemon.PID()))(e, "reading the daemon's status")
	descriptors, err := process.Descriptors(e.Daemon.PID())
	e.Must(err, "reading the daemon's descriptors")
	goroutines := harness.Need(e.Metric("go_goroutines"))(e, "reading the daemon's metrics")
	return usage{
		"KiB of memory": status["VmRSS"], "threads": status["Threads"],
		"descriptors": descriptors, "goroutines": int(goroutines),
	}
}

// look makes the daemon look at every pool so many times, by mount events, and compares what it has
// in the beginning with what it has in the end. Each moves to and fro while calls are tried again,
// so it is read after each tenth: the most of the first three, and the least of the last three.
// What grows with the looks shows in these all the same.
func (e *environment) look(ctx context.Context, r *report, pools []*pool, n int) {
	began := time.Now()
	var read []usage
	more, less := func(a, b int) int { return max(a, b) }, func(a, b int) int { return min(a, b) }
	for range 10 {
		e.looks(ctx, pools, n/10)
		read = append(read, e.usage())
	}
	r.before, r.after, r.looked = each(read[:3], more), each(read[7:], less), time.Since(began)
	for what, may := range bound {
		if before, after := r.before[what], r.after[what]; after > before+may {
			e.Fault(grown, "%s: %d before, %d after %d looks", what, before, after, n)
		}
	}
}

// each is the most, or the least, of everything.
func each(all []usage, of func(int, int) int) usage {
	sum := maps.Clone(all[0])
	for _, u := range all {
		for what, n := range u {
			sum[what] = of(sum[what], n)
		}
	}
	return sum
}

// looks makes mount events until each pool was looked at n times more, by the daemon's own count.
func (e *environment) looks(ctx context.Context, pools []*pool, n int) {
	goal := map[string]float64{}
	for _, p := range pools {
		goal[p.name] = e.checks(p) + float64(n)
	}
	dir := hosttest.Dir(e)
	for len(goal) > 0 {
		if ctx.Err() != nil {
			e.Fatal("interrupted")
		}
		e.Must(unix.Mount("none", dir, "tmpfs", 0, "size=4k"), "mounting")
		time.Sleep(20 * time.Millisecond) // several events in a row are one look
		e.Must(unix.Unmount(dir, 0), "unmounting")
		time.Sleep(20 * time.Millisecond)
		for _, p := range pools {
			if at, left := goal[p.name]; left && e.checks(p) >= at {
				delete(goal, p.name)
			}
		}
	}
}

func (e *environment) checks(p *pool) float64 {
	n, err := e.Metric(fmt.Sprintf("hostpath_provisioner_pool_checks_total{pool=%q}", p.name))
	e.Must(err, "reading the daemon's metrics")
	return n
}

// cutOff cuts off the file behind a loop device: reads of the device fail from then on, and the
// marker, which is kept in the cache until release is called, can still be read.
func (e *environment) cutOff(ctx context.Context) (release func()) {
	e.Say("yanking a disk")
	harness.Need(e.Bound(ctx, "yanked", "before-the-yank"))(e, "making a claim")
	release = hosttest.KeepCached(e, e.marker())
	e.Must(os.Truncate(e.doomed.File, 0), "cutting off the disk")
	return release
}

func (e *environment) marker() string {
	return filepath.Join(e.dir, ".hostpath-provisioner", "pool.json")
}

// awaitNotice waits for the daemon to notice that.
func (e *environment) awaitNotice(r *report) {
	began := time.Now()
	status, err := e.WaitPool(e.Soon(), "yanked", func(p daemon.PoolStatus) bool { return !p.Open && p.Reason != "NotChecked" })
	if e.Blame(notNoticed, err) {
		return
	}
	r.yanked, r.yankMessage = status.Since.Sub(began), status.Reason+": "+status.Message
	if _, err := os.ReadFile(e.marker()); err != nil {
		e.Fault(nothingDone, "the cache cannot be read, so nothing is proven: %v", err)
	}
	if r.yanked > comesBack+e.slack || status.Reason != "Unreadable" {
		e.Fault(notNoticed, "after %s: %s", r.yanked, r.yankMessage)
	}
}
