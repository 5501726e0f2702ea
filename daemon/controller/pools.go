package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/words"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// fanOut passes a change of the mount table on to every pool.
func (c *Controller) fanOut(ctx context.Context) {
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
func (c *Controller) Look() {
	for _, r := range c.workers {
		signal(r.kick)
	}
}

// watchPool looks at one pool again and again: at once when the mount table changed or work in it
// failed, and slowly otherwise, so that a lost event costs seconds and not correctness.
func (c *Controller) watchPool(ctx context.Context, r *poolWorker, first func()) {
	tick := time.NewTicker(c.Tick)
	defer tick.Stop()
	for {
		r.turned.Store(time.Now().UnixNano())
		c.look(ctx, r)
		if first != nil {
			first()
			first = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-r.kick:
		case <-tick.C:
		}
	}
}

// look probes a pool once. The gate closes before anybody is told; it opens after.
func (c *Controller) look(ctx context.Context, r *poolWorker) {
	identified := c.cluster.Identified()
	deadline, cancel := context.WithTimeout(ctx, c.Deadline)
	report := r.Probe.Probe(deadline)
	cancel()
	if ctx.Err() != nil {
		return
	}
	if report.Removable() {
		r.owner.Check(ctx, &report)
	}
	if report.Removable() {
		if err := r.Opened(report.Mark); err != nil {
			report.Findings = append(report.Findings, hostcheck.Finding{
				Reason: plan.ReasonStateUnwritable, Severity: hostcheck.Close,
				Message: "the pool's identity cannot be remembered: " + err.Error(),
			})
		}
	}
	before, after := c.Gate.Set(report, time.Now())
	if identified {
		r.owner.Checked()
	}
	if !after.Removable() {
		r.disk.Close()
	}
	r.elector.Look() // a leader that cannot work any more leaves the pool to another node
	c.Metrics.Pool(after)
	r.outage.note(after.Open(), time.Now())
	if gate.Changed(before, after) {
		r.changes.Note()
	}
	c.reportPool(r, after)
	moved := gate.Moved(before, after)
	if after.Removable() && (!before.Removable() || moved) {
		signal(r.recheck)
		c.requeueVolumes(r)
	}
	if before.Checked && !after.Open() && gate.Changed(before, after) {
		c.requeueVolumes(r) // those of scope every-node say that this node fails
	}
	if after.Open() && (!before.Open() || moved) {
		c.requeueClaims(r.Name)
	}
}

// reportPool tells the log and the Node object what changed, each finding in its own words. The state of a pool that
// changes to and fro is told now and then, with how often it changed.
func (c *Controller) reportPool(r *poolWorker, now gate.State) {
	due, changes, lasted := r.changes.Due(time.Now())
	if !due {
		return
	}
	was, often := r.reported, ""
	r.reported = now
	if changes > 1 {
		often = fmt.Sprintf(" (its state changed %d times within %s)", changes, lasted.Round(time.Second))
	}
	if now.Open() && (!was.Open() || changes > 1) {
		message := "pool " + r.Name + ": open, " + words.Size(now.Report.Free) + " for new volumes" + often
		c.Log.Info(message, "reason", plan.ReasonPoolOpened, "pool", r.Name)
		if was.Checked {
			c.Events.Event(report.Node(c.Node), corev1.EventTypeNormal, plan.ReasonPoolOpened, message)
		}
	}
	for _, f := range now.Report.Findings {
		message := "pool " + r.Name + ": " + f.Message + often
		c.Log.Warn(message, "reason", f.Reason, "pool", r.Name)
		c.Events.Event(report.Node(c.Node), corev1.EventTypeWarning, f.Reason, message)
	}
}
