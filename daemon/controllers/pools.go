package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

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

// Look makes every pool's loop look at its pool now.
func (c *frame) Look() {
	for _, w := range c.workers {
		signal(w.kick)
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
		signal(w.recheck)
		if w.Inline > 0 {
			signal(w.sweep)
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
		message := "pool " + w.Name + ": " + f.Message + often
		c.Log.Warn(message, "reason", f.Reason, "pool", w.Name)
		c.Events.Event(report.Node(c.Node), corev1.EventTypeWarning, f.Reason, message)
	}
}
