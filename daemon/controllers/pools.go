package controllers

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// pools looks at the pools and what they have: whether they take work, whose they are, which daemon
// works in a shared one, what their volumes take.
type pools struct {
	*frame
	copies  *copies
	cluster *cluster
}

// fanOut passes a change of the mount table on to every pool.
func (c *pools) fanOut(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.Mounts:
			c.Look()
		}
	}
}

// watchPool looks at one pool again and again: at once when the mount table changed or work in it
// failed, and slowly otherwise, so that a lost event costs seconds and not correctness.
func (c *pools) watchPool(ctx context.Context, w *poolWorker, first func()) {
	tick := time.NewTicker(c.Tick)
	defer tick.Stop()
	for {
		w.turned.Store(time.Now().UnixNano())
		c.look(ctx, w)
		if first != nil {
			first()
			first = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-w.kick:
		case <-tick.C:
		}
	}
}

// look probes a pool once. The gate closes before anything is reported, and opens after.
func (c *pools) look(ctx context.Context, w *poolWorker) {
	identified := c.identity.Identified()
	deadline, cancel := context.WithTimeout(ctx, c.Deadline)
	report := w.Probe.Probe(deadline)
	cancel()
	if ctx.Err() != nil {
		return
	}
	c.identity.Recall(ctx, report.Mark)
	sound := report.Removable()
	if sound {
		w.owner.Check(ctx, &report)
	}
	if report.Removable() {
		if err := w.Opened(report.Mark); err != nil {
			report.Findings = append(report.Findings, hostcheck.Finding{
				Reason: plan.ReasonStateUnwritable, Severity: hostcheck.Close,
				Message: "the pool's identity cannot be remembered: " + err.Error(),
			})
		}
	}
	before, after := c.Gate.Set(report, time.Now())
	if identified {
		w.owner.Checked()
	}
	if !after.Removable() && !stillOpening(sound, before, after) {
		w.disk.Close()
		c.tellFigures(w, usage.Pool{})
	}
	w.elector.Look() // a leader that cannot work any more leaves the pool to another node
	seen := w.asReported(after)
	c.Metrics.Pool(seen)
	w.outage.note(after.Open(), time.Now())
	if gate.Changed(w.last, seen) {
		w.changes.Note()
	}
	w.last = seen
	c.reportPool(w, seen)
	moved := gate.Moved(before, after)
	if after.Removable() && (!before.Removable() || moved) {
		wake.Signal(w.recheck)
		if w.Inline > 0 {
			wake.Signal(w.sweep)
		}
		c.requeueVolumes(w)
	}
	if before.Checked && !after.Open() && gate.Changed(before, after) {
		c.requeueVolumes(w) // those of scope every-node say that this node fails
	}
	if after.Open() && (!before.Open() || moved) {
		c.requeueClaims(w.Name)
		c.copies.requeueContents()
	}
}

// stillOpening reports whether a closed pool was closed before and is the same sound directory:
// only its owner keeps it closed, and the census that is being taken for that goes on. There are no
// other handles on such a pool.
func stillOpening(sound bool, before, after gate.State) bool {
	return sound && before.Checked && !before.Removable() && before.Report.Identity == after.Report.Identity
}

// free is what new volumes may take, as far as it is known what is promised.
func (w *poolWorker) free(now gate.State) uint64 {
	if room, _, counted := w.disk.Room(); counted {
		return room.Free
	}
	return now.Report.Free
}

// Room is what a pool has for one more volume, and what of it was promised by the pool itself. ok
// is false as long as that was not counted.
func (c *pools) Room(pool string) (room capacity.Room, own uint64, ok bool) {
	if w := c.workers[pool]; w != nil && pool != "" {
		return w.disk.Room()
	}
	return capacity.Room{}, 0, false
}

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

// reportPool tells the log and the Node object what changed, each finding in its own words. The
// state of a pool that changes to and fro is told now and then, with how often it changed.
func (c *pools) reportPool(w *poolWorker, now gate.State) {
	due, changes, lasted := w.changes.Due(time.Now())
	if !due {
		return
	}
	was, often := w.reported, ""
	w.reported = now
	if changes > 1 {
		often = fmt.Sprintf(" (its state changed %d times within %s)", changes, lasted.Round(time.Second))
	}
	if now.Open() && (!was.Open() || changes > 1) {
		message := "pool " + w.Name + ": open, " + words.Size(w.free(now)) + " for new volumes" + often
		c.Log.Info(message, "reason", plan.ReasonPoolOpened, "pool", w.Name)
		if was.Checked {
			c.Events.Event(report.Node(c.Node), corev1.EventTypeNormal, plan.ReasonPoolOpened, message)
		}
	}
	for _, f := range now.Report.Findings {
		c.warnNode(w.Name, f.Reason, f.Message+often)
	}
}

const (
	// explainAfter is how long a pool is closed before its claims are told why they wait. Most
	// closures are shorter: a remount, a filesystem that was full for a moment. Then 500 waiting
	// claims have no event, and the node has one.
	explainAfter = 3 * time.Second
	// openFor is how long a pool has to be open for its closure to be over. One that opens and
	// closes all the time is closed from the first time on, so that its claims are told.
	openFor = 10 * time.Second
)

// outage is since when a pool is closed.
type outage struct {
	mu            sync.Mutex
	began, opened time.Time
}

// note notes whether the pool is open now.
func (o *outage) note(open bool, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case open && o.opened.IsZero():
		o.opened = now
	case !open && (o.began.IsZero() || !o.opened.IsZero() && now.Sub(o.opened) >= openFor):
		o.began, o.opened = now, time.Time{}
	case !open:
		o.opened = time.Time{}
	}
}

// unexplained is how long the claims of a closed pool are not told why they wait, from now on.
func (o *outage) unexplained(now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return max(0, explainAfter-now.Sub(o.began))
}

// Capacity is what one more volume of a class can get on this node, in bytes, of several pools in
// the one that has most: 0 where all are closed, or the node has no pool for it, for the reason
// closed. known is false before that was checked and counted.
func (c *pools) Capacity(class *storagev1.StorageClass) (bytes uint64, closed string, known bool) {
	pools, refusal := c.Candidates(class, c.configured)
	if refusal != nil {
		return 0, refusal.Reason, true
	}
	open := false
	for _, pool := range pools {
		one, why, known := c.capacityOf(pool)
		if !known {
			return 0, "", false
		}
		bytes, closed, open = max(bytes, one), cmp.Or(closed, why), open || why == ""
	}
	if open {
		closed = ""
	}
	return bytes, closed, true
}

// capacityOf is Capacity of one pool.
func (c *pools) capacityOf(pool plan.Pool) (bytes uint64, closed string, known bool) {
	w := c.workers[pool.Name]
	state := c.Gate.State(pool.Name)
	switch {
	case !state.Checked:
		return 0, "", false
	case !state.Open():
		closed, _ = state.Closed()
		return 0, closed, true
	case !w.elector.Leads():
		return w.disk.RoomWith(c.promisedBy(w)).Free, "", true
	}
	room, _, counted := w.disk.Room()
	return room.Free, "", counted
}

// promisedBy is what the volume objects of a shared pool say that was promised: the records are
// counted by the node that works in it.
func (c *pools) promisedBy(w *poolWorker) (sum uint64) {
	for _, v := range c.volumesIn(w.Name) {
		if v.Labels[plan.ScopeLabel] == plan.ScopeShared {
			n, _ := plan.Bytes(plan.SizeOf(v))
			sum += uint64(n)
		}
	}
	return sum
}
