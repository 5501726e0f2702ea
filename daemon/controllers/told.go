package controllers

import (
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// spent is whether all of a pool is promised, and since when that is so or is not.
type spent struct {
	mu    sync.Mutex
	is    bool
	since time.Time
}

func (s *spent) note(is bool, now time.Time) (since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.is != is {
		s.is, s.since = is, now
	}
	return s.since
}

// told is the state of a pool as people and metrics are told it: an open one that has nothing left
// to promise is full. The gate stays open, because a volume that goes makes room without a look at
// the pool, and what little is left may be asked for.
func (w *poolWorker) told(now gate.State) gate.State {
	message := ""
	if room, _, counted := w.disk.Room(); counted && now.Open() {
		message = plan.AllPromised(room)
	}
	if since := w.spent.note(message != "", time.Now()); since.After(now.Since) && now.Open() {
		now.Since = since
	}
	if message != "" {
		now.Report.Findings = append([]hostcheck.Finding{
			{Reason: plan.ReasonPromised, Severity: hostcheck.Full, Message: message},
		}, now.Report.Findings...)
	}
	return now
}

// Told is the state of a pool as people are told it.
func (c *Controller) Told(pool string) gate.State {
	state := c.Gate.State(pool)
	if w := c.workers[pool]; w != nil && pool != "" {
		return w.told(state)
	}
	return state
}
