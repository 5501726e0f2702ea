package controllers

import (
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// promised is whether all of a pool is promised, and since when that is so or is not.
type promised struct {
	mu    sync.Mutex
	is    bool
	since time.Time
}

func (s *promised) note(is bool, now time.Time) (since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.is != is {
		s.is, s.since = is, now
	}
	return s.since
}

// asReported is the state of a pool as it is reported to people and metrics: an open one that has nothing left
// to promise is full. The gate stays open, because a volume that goes makes room without a look at
// the pool, and what little is left may be asked for.
func (w *poolWorker) asReported(now gate.State) gate.State {
	message := ""
	if room, _, counted := w.disk.Room(); counted && now.Open() {
		message = plan.AllPromised(room)
	}
	if since := w.promised.note(message != "", time.Now()); since.After(now.Since) && now.Open() {
		now.Since = since
	}
	if message != "" {
		now.Report.Findings = append([]hostcheck.Finding{
			{Reason: plan.ReasonPromised, Severity: hostcheck.Full, Message: message},
		}, now.Report.Findings...)
	}
	return now
}

// Reported is the state of a pool as it is reported to people and metrics.
func (c *pools) Reported(pool string) gate.State {
	state := c.Gate.State(pool)
	if w := c.workers[pool]; w != nil && pool != "" {
		return w.asReported(state)
	}
	return state
}
