package controllers

import (
	"fmt"
	"sync/atomic"
	"time"
)

// progress is when a queue's workers were last done with an item, in ns since the epoch; 0 before
// they work.
type progress struct{ atomic.Int64 }

// tracked returns the task with a note of each time that it was done. The empty item is Ping's.
func (p *progress) tracked(task func(item) (time.Duration, error)) func(item) (time.Duration, error) {
	p.Store(time.Now().UnixNano())
	return func(i item) (after time.Duration, err error) {
		defer func() { p.Store(time.Now().UnixNano()) }()
		if i == (item{}) {
			return 0, nil
		}
		return task(i)
	}
}

// lasted is how long ago that was, 0 before the workers work.
func (p *progress) lasted(now time.Time) time.Duration {
	if last := p.Load(); last != 0 {
		return now.Sub(time.Unix(0, last))
	}
	return 0
}

// longestTask is what one item may take beside the pool's disk, which is given up at a deadline:
// four requests, one after the other, to an API server that does not respond (30 s each,
// callTimeout in package kube).
const longestTask = 2 * time.Minute

// Ping sends an item through each queue of claims and of volumes, so that one without work makes
// progress, too. Purges are left out: to empty one directory may take hours.
func (c *Controller) Ping() {
	for _, w := range c.workers {
		w.claims.Add(item{})
		w.volumes.Add(item{})
	}
}

// Alive returns an error that names what makes no progress, nil if everything does. The loop of a
// pool may take timeout, a poll and the disk's deadline. Workers may take the time of their
// requests besides: an API server that does not respond is no reason for a restart.
func (c *Controller) Alive(now time.Time, timeout time.Duration) error {
	loop := timeout + c.Tick + c.Deadline
	for name, w := range c.workers {
		for _, part := range []struct {
			what  string
			at    *progress
			limit time.Duration
		}{{"loop", &w.turned, loop}, {"claim workers", &w.claimed, loop + longestTask}, {"volume workers", &w.looked, loop + longestTask}} {
			if lasted := part.at.lasted(now); lasted > part.limit {
				return fmt.Errorf("pool %q: no progress of its %s for %s", name, part.what, lasted.Round(time.Second))
			}
		}
	}
	return nil
}
