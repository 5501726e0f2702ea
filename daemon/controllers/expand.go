package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/expansion"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

func (c *claims) newExpander() *expansion.Expander {
	return expansion.New(expansion.Options{
		Self: c.Self, API: c.API, Controller: growth{c}, Events: c.Events, Metrics: c.Metrics, Log: c.Log,
	})
}

// expand looks at a bound claim that requests more than it has.
func (c *claims) expand(ctx context.Context, w *poolWorker, claim *corev1.PersistentVolumeClaim) (time.Duration, error) {
	return c.expander.Look(ctx, w.expansion(), claim)
}

func (w *poolWorker) expansion() expansion.Pool {
	return expansion.Pool{Pool: w.Pool, Disk: w.disk, Elector: w.elector, LookAt: func() { signal(w.kick) }}
}

// restyled tells a bound claim that names a VolumeAttributesClass that there is none.
func (c *claims) restyled(w *poolWorker, claim *corev1.PersistentVolumeClaim) time.Duration {
	f := plan.ExpandFacts{Self: c.Self, Claim: claim, Pool: &w.Pool,
		Silent: w.elector.Role() == leadership.Standby}
	f.Volume, _ = c.Listers.Volumes.Get(claim.Spec.VolumeName)
	v := plan.ForRestyled(f)
	if !c.reportClaim(claim, v, w.Name) {
		return report.LimitedRetry
	}
	return c.lookAgainAfter(string(claim.UID), v)
}

// mendSizes gives records the sizes of their volume objects. What fails is tried again with
// the next comparison.
func (c *claims) mendSizes(
	ctx context.Context, w *poolWorker, h disk.Handle, records []record.Record,
) {
	err := c.expander.Mend(ctx, h, w.expansion(), records)
	if err != nil && c.said.New("sizes/"+w.Name, err.Error()) {
		c.Log.Warn(err.Error(), "pool", w.Name, "doing", "comparing the sizes of records")
	}
}

// requeueGrowing looks again at a volume's claim if that asks for something: the watch
// brought the claim first.
func (c *claims) requeueGrowing(v *corev1.PersistentVolume) {
	ref := v.Spec.ClaimRef
	if ref == nil {
		return
	}
	if claim, kept := c.Listers.Claims.Get(ref.Namespace + "/" + ref.Name); kept && plan.Asks(claim) {
		c.workers[c.poolNameOf(claim)].claims.Add(claimItem(claim))
	}
}

// growth is what the controller does for the expansion of claims.
type growth struct{ c *claims }

func (g growth) WatchedVolume(name string) (*corev1.PersistentVolume, bool) {
	return g.c.Listers.Volumes.Get(name)
}

func (g growth) CountNodes(ctx context.Context) int { return g.c.cluster.nodeCount(ctx, time.Minute) }

func (g growth) MayWarn(namespace string) bool { return g.c.mayWarn(namespace) }
