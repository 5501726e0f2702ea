package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// measureEvery is how often what volumes take is read: as often as Prometheus usually asks, or
// less.
const measureEvery = 30 * time.Second

// measure reads what the volumes of a pool take, for the metrics and for the events about them. It
// has a goroutine of its own, because a filesystem that hangs keeps it until the pool closes.
func (c *pools) measure(ctx context.Context, w *poolWorker) {
	tick := time.NewTicker(measureEvery)
	defer tick.Stop()
	var watch usage.Watch
	for {
		c.measureOnce(ctx, w, &watch)
		select {
		case <-ctx.Done():
			c.takes(w, usage.Pool{})
			return
		case <-tick.C:
		}
	}
}

// takes keeps what was measured, for the status and for the metrics.
func (c *pools) takes(w *poolWorker, p usage.Pool) {
	w.takes.Store(&p)
	c.Metrics.Usage(w.Name, p)
}

// Takes is what the volumes of a pool take by their quotas, or else by their directories, as last
// measured; zero: not known.
func (c *pools) Takes(pool string) usage.Pool {
	if w := c.workers[pool]; w != nil {
		if p := w.takes.Load(); p != nil {
			return *p
		}
	}
	return usage.Pool{}
}

// measureOnce has no figures while the pool is closed: those of before may be of other storage.
func (c *pools) measureOnce(ctx context.Context, w *poolWorker, watch *usage.Watch) {
	h, ok := w.disk.Open(ctx)
	if !ok {
		c.takes(w, usage.Pool{})
		return
	}
	p, err := h.Usage()
	key := "usage/" + w.Name
	if err != nil {
		c.takes(w, usage.Pool{})
		if ctx.Err() == nil && c.said.New(key, err.Error()) {
			c.Log.Warn(err.Error(), "pool", w.Name)
		}
		return
	}
	c.said.Forget(key)
	c.takes(w, p)
	for _, v := range watch.Full(p) {
		if !c.nearlyFull(w.Name, v) {
			watch.Retract(v.PV)
		}
	}
	c.warnNode(w.Name, plan.ReasonQuotaEscaped, watch.Escape(p))
	c.warnNode(w.Name, plan.ReasonFewProjects, watch.Scarce(p))
}

// warnNode tells the node what was found in a pool, unless it is "".
func (c *pools) warnNode(pool, reason, message string) {
	if message == "" {
		return
	}
	message = "pool " + pool + ": " + message
	c.Log.Warn(message, "reason", reason, "pool", pool)
	c.Events.Event(report.Node(c.Node), corev1.EventTypeWarning, reason, message)
}

// nearlyFull tells the claim that a volume was made for. It is left out, which is false, if there
// was too much to say of the namespace.
func (c *pools) nearlyFull(pool string, v usage.Volume) bool {
	if !c.mayWarn(v.Namespace) {
		return false
	}
	message := usage.Nearly(v)
	c.Log.Warn(message, "reason", plan.ReasonVolumeNearlyFull, "claim", v.Namespace+"/"+v.Claim, "volume", v.PV, "pool", pool)
	c.Events.Event(report.RecordedClaim(v.Namespace, v.Claim, v.ClaimUID), corev1.EventTypeWarning, plan.ReasonVolumeNearlyFull, message)
	return true
}
