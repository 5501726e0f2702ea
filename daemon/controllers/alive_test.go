package controllers

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

func TestAlive(t *testing.T) {
	const limit, much = time.Second, time.Hour
	c := New(Options{Tick: time.Second, Deadline: time.Second, Pools: []PoolParts{{Pool: plan.Pool{Name: "fast"}}}})
	now := time.Now()
	if err := c.Alive(now.Add(much), limit); err != nil {
		t.Errorf("before anything began: %v", err)
	}
	all := map[string]*progress{}
	for name, w := range c.workers {
		all["pool \""+name+"\": no progress of its claim workers"] = &w.claimed
		all["pool \""+name+"\": no progress of its volume workers"] = &w.looked
	}
	all["pool \"fast\": no progress of its loop"] = &c.workers["fast"].turned
	for stuck, p := range all {
		for _, other := range all {
			other.Store(now.Add(much).UnixNano())
		}
		if err := c.Alive(now.Add(much), limit); err != nil {
			t.Errorf("all turned: %v", err)
		}
		p.Store(now.UnixNano())
		if err := c.Alive(now.Add(much), limit); err == nil || !strings.Contains(err.Error(), stuck) {
			t.Errorf("%v, want one with %q", err, stuck)
		}
		p.Store(now.Add(much - longestTask).UnixNano())
		if err := c.Alive(now.Add(much), limit); strings.Contains(stuck, "workers") && err != nil {
			t.Errorf("workers that wait for requests: %v", err)
		}
	}
}

// Workers that all hang are told from those that have nothing to do, and from those of a long
// queue.
func TestProgress(t *testing.T) {
	q, release := newQueue(), make(chan struct{})
	var all sync.WaitGroup
	var made progress
	done := make(chan struct{}, 1)
	task := made.tracked(func(i item) (time.Duration, error) {
		if i.name == "hangs" {
			<-release
		}
		done <- struct{}{}
		return 0, nil
	})
	all.Go(func() { work(context.Background(), q, task) })
	defer all.Wait()
	defer q.ShutDown()
	defer close(release)

	long := time.Now().Add(-time.Hour).UnixNano()
	made.Store(long)
	q.Add(item{}) // a ping
	await(t, "the idle worker's progress", func() bool { return made.Load() != long })
	made.Store(long)
	q.Add(item{name: "works"})
	<-done
	await(t, "the busy worker's progress", func() bool { return made.Load() != long })
	made.Store(long)
	q.Add(item{name: "hangs"})
	await(t, "the worker at its task", func() bool { return q.Len() == 0 })
	q.Add(item{})
	if made.Load() != long {
		t.Error("a worker that hangs made progress")
	}
}

func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain for " + what)
		}
	}
}

// slowCount is an API server that takes its time to list the nodes.
type slowCount struct {
	API
	asked   chan struct{}
	release chan struct{}
}

func (s slowCount) NodeCount(context.Context) (int, error) {
	s.asked <- struct{}{}
	<-s.release
	return 1, nil
}

// One worker counts the nodes, and none waits for its request longer than for a moment.
func TestCountingBlocksNoWorker(t *testing.T) {
	a := slowCount{asked: make(chan struct{}, 100), release: make(chan struct{})}
	c := New(Options{API: a})
	c.nodes.counted = time.Now().Add(-time.Hour)
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			if n := c.nodeCount(t.Context(), time.Minute); n != 2 {
				t.Errorf("%d nodes before they were counted again, want 2", n)
			}
		})
	}
	all.Wait()
	if len(a.asked) != 1 {
		t.Errorf("%d requests, want one", len(a.asked))
	}
	close(a.release)
	await(t, "the number", func() bool { return c.nodeCount(t.Context(), time.Minute) == 1 })
	if len(a.asked) != 1 {
		t.Errorf("%d requests in the end, want one", len(a.asked))
	}
}

// A worker waits for the first number: a node that is alone would leave its claims to others.
func TestFirstCountIsAwaited(t *testing.T) {
	a := slowCount{asked: make(chan struct{}, 1), release: make(chan struct{})}
	c := New(Options{API: a})
	time.AfterFunc(2*countWait, func() { close(a.release) })
	if n := c.nodeCount(t.Context(), time.Minute); n != 1 {
		t.Errorf("%d nodes, want 1", n)
	}
}
