package mounts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

const soon = time.Minute // far more than a signal takes; a lost one takes for ever

func await(t testing.TB, changed <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(soon):
		t.Fatalf("no signal after %s", what)
	}
}

func mounted(t testing.TB, dir string) bool {
	t.Helper()
	m, _ := Covering(table(t), dir)
	return m.Point == dir
}

// Each of 1,000 mounts and 1,000 unmounts is signalled, and the table read after the signal shows
// it.
func TestWatchMissesNothing(t *testing.T) {
	dir := mkdir(t, hosttest.Dir(t), "p")
	changed, err := Watch(t.Context())
	must(t, err)
	for round := range 1000 {
		must(t, unix.Mount("t", dir, "tmpfs", 0, ""))
		await(t, changed, fmt.Sprint("mount ", round))
		if !mounted(t, dir) {
			t.Fatalf("mount %d does not show", round)
		}
		flags := []int{0, unix.MNT_DETACH}[round%2]
		must(t, unix.Unmount(dir, flags))
		await(t, changed, fmt.Sprint("unmount ", round))
		if mounted(t, dir) {
			t.Fatalf("mount %d still shows", round)
		}
	}
}

// Whatever happens to a pool's mount is signalled.
func TestWatchEveryKind(t *testing.T) {
	base := hosttest.Dir(t)
	dir, other := mkdir(t, base, "p"), mkdir(t, base, "q")
	image := hosttest.Mkfs(t, "ext4", 16)
	changed, err := Watch(t.Context())
	must(t, err)
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"mount", func() { image.Mount(t, dir) }},
		{"remount read-only", func() { hosttest.Mount(t, "-o", "remount,ro", dir) }},
		{"remount writable", func() { hosttest.Mount(t, "-o", "remount,rw", dir) }},
		{"this mount alone read-only", func() { hosttest.Mount(t, "-o", "remount,bind,ro", dir) }},
		{"bind over it", func() { hosttest.Mount(t, "--bind", other, dir) }},
		{"unmount what was bound", func() { hosttest.Unmount(t, dir) }},
		{"move", func() {
			hosttest.Mount(t, "--make-private", "/media")
			hosttest.Mount(t, "--move", dir, other)
			hosttest.Mount(t, "--make-shared", "/media")
		}},
		{"lazy unmount", func() { hosttest.UnmountLazy(t, other) }},
		{"hidden by a mount above", func() { tmpfs(t, base) }},
		{"shown again", func() { hosttest.Unmount(t, base) }},
	} {
		step.do()
		await(t, changed, step.name)
		drain(changed)
	}
}

// drain takes what a step of several changes may have signalled since. A signal that is late by
// more makes the next await easier, never harder.
func drain(changed <-chan struct{}) {
	select {
	case <-changed:
	case <-time.After(20 * time.Millisecond):
	}
}

// No goroutine listens for a while: the watch does not stop, and three signals stand for all: one
// that waits, one that the watch was about to send, and one for what came after that.
func TestWatchJoinsChanges(t *testing.T) {
	dir := mkdir(t, hosttest.Dir(t), "p")
	changed, err := Watch(t.Context())
	must(t, err)
	for range 100 {
		must(t, unix.Mount("t", dir, "tmpfs", 0, ""))
		must(t, unix.Unmount(dir, 0))
	}
	await(t, changed, "200 changes")
	drain(changed)
	drain(changed)
	if len(changed) != 0 {
		t.Fatal("more than three signals")
	}
	must(t, unix.Mount("t", dir, "tmpfs", 0, ""))
	await(t, changed, "a change after all that")
}

func TestWatchEnds(t *testing.T) {
	descriptors, goroutines := openDescriptors(t), runtime.NumGoroutine()
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := Watch(ctx)
		must(t, err)
		cancel()
	}
	deadline := time.Now().Add(soon)
	for runtime.NumGoroutine() > goroutines || openDescriptors(t) > descriptors {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines and %d descriptors, were %d and %d", runtime.NumGoroutine(), openDescriptors(t), goroutines, descriptors)
		}
		runtime.Gosched()
	}
}

// The table is read again when, and only when, it changed.
func TestTable(t *testing.T) {
	dir := mkdir(t, hosttest.Dir(t), "p")
	tab, err := OpenTable()
	must(t, err)
	look := func() (bool, uint64) {
		list, generation, err := tab.Mounts()
		must(t, err)
		m, _ := Covering(list, dir)
		return m.Point == dir, generation
	}
	_, first := look()
	if _, again := look(); again != first {
		t.Fatalf("read again without a change: %d, then %d", first, again)
	}
	for round := range 200 {
		must(t, unix.Mount("t", dir, "tmpfs", 0, ""))
		if shown, _ := look(); !shown {
			t.Fatalf("mount %d does not show", round)
		}
		must(t, unix.Unmount(dir, 0))
		if shown, _ := look(); shown {
			t.Fatalf("mount %d still shows", round)
		}
	}
}

// manyMounts makes mounts below a directory whose lines take many pages of the table.
func manyMounts(t *testing.T, base string) (points []string) {
	t.Helper()
	for i := range 100 {
		dir := mkdir(t, base, strings.Repeat("long name ", 15)+fmt.Sprint(i))
		must(t, unix.Mount("t", dir, "tmpfs", 0, ""))
		points = append(points, dir)
	}
	return points
}

// A table that takes many readings to read loses no line of a mount that stays, while others come
// and go in between.
func TestReadInAStorm(t *testing.T) {
	base := hosttest.Dir(t)
	points := manyMounts(t, base)
	var stop atomic.Bool
	var storm sync.WaitGroup
	storm.Go(func() {
		dir := filepath.Join(base, "storm")
		_ = os.Mkdir(dir, 0o700)
		for !stop.Load() {
			_ = unix.Mount("t", dir, "tmpfs", 0, "")
			_ = unix.Unmount(dir, 0)
		}
	})
	defer storm.Wait()
	defer stop.Store(true)
	for range 300 {
		seen := map[string]int{}
		for _, m := range table(t) {
			seen[m.Point]++
		}
		for _, point := range points {
			if seen[point] != 1 {
				t.Fatalf("%q is in the table %d times", point, seen[point])
			}
		}
	}
}

// The kernel hands the table out a page at a time. A mount that was unmounted after its page was
// read, and mounted again before the last page was, must not be in the table twice.
func TestReadIsOfOneMoment(t *testing.T) {
	base := hosttest.Dir(t)
	points := manyMounts(t, base)
	var stop atomic.Bool
	var reads atomic.Int64
	var storm sync.WaitGroup
	storm.Go(func() {
		for step := 0; !stop.Load(); step++ {
			dir := points[step%len(points)]
			_ = unix.Unmount(dir, 0)
			_ = unix.Mount("t", dir, "tmpfs", 0, "")
			for end := reads.Load() + 1; reads.Load() < end && !stop.Load(); {
				runtime.Gosched()
			}
		}
	})
	defer storm.Wait()
	defer stop.Store(true)
	for range 300 {
		seen := map[string]int{}
		for _, m := range table(t) {
			if seen[m.Point]++; seen[m.Point] > 1 && strings.HasPrefix(m.Point, base) {
				t.Fatalf("%q is in the table twice", m.Point)
			}
		}
		reads.Add(1)
	}
}

// BenchmarkUnmountToSignal measures from the return of umount(2) to the signal's arrival.
func BenchmarkUnmountToSignal(b *testing.B) {
	dir := mkdir(b, hosttest.Dir(b), "p")
	changed, err := Watch(b.Context())
	must(b, err)
	var took []time.Duration
	for b.Loop() {
		must(b, unix.Mount("t", dir, "tmpfs", 0, ""))
		await(b, changed, "mount")
		began := time.Now()
		must(b, unix.Unmount(dir, 0))
		await(b, changed, "unmount")
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-p99")
	b.ReportMetric(float64(took[len(took)-1].Microseconds()), "µs-max")
}

func BenchmarkRead(b *testing.B) {
	base := hosttest.Dir(b)
	for i := range 300 {
		must(b, unix.Mount("t", mkdir(b, base, fmt.Sprint(i)), "tmpfs", 0, ""))
	}
	b.ReportMetric(float64(len(table(b))), "mounts")
	for b.Loop() {
		_, err := Read()
		must(b, err)
	}
}
