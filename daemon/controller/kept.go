package controller

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/report"
)

const (
	// fewVolumes is how many volumes of the cluster are read at most before a claim is provisioned that no provisioner was asked for:
	// 0.7 MB of the CSI volumes of test/bench, before compression.
	fewVolumes = 500
	// manyAgain is for how long a cluster has more than that after it was seen to.
	manyAgain = 10 * time.Minute
)

// keptVolumes is which volumes of the cluster are kept for claims (plan.Keeps), as they were read last. The API server cannot
// select them.
type keptVolumes struct {
	held  chan struct{} // by the one that reads
	begun time.Time     // of the last read
	refs  []corev1.ObjectReference
	all   bool // these are all
	err   error
}

func newKeptVolumes() *keptVolumes { return &keptVolumes{held: make(chan struct{}, 1)} }

// mayBe reports whether a volume may be kept for a claim, by a read that begins after the call. Claims that come during a read share the
// next one.
func (k *keptVolumes) mayBe(ctx context.Context, api Reader, claim *corev1.PersistentVolumeClaim) (bool, error) {
	came := time.Now()
	select {
	case k.held <- struct{}{}:
		defer func() { <-k.held }()
	case <-ctx.Done():
		return true, ctx.Err()
	}
	many := k.err == nil && !k.all && time.Since(k.begun) < manyAgain
	if !many && !k.begun.After(came) {
		k.read(ctx, api)
	}
	return !k.all || slices.ContainsFunc(k.refs, func(ref corev1.ObjectReference) bool { return plan.KeptFor(ref, claim) }), k.err
}

func (k *keptVolumes) read(ctx context.Context, api Reader) {
	k.begun, k.refs = time.Now(), nil
	k.all, k.err = api.FewVolumes(ctx, fewVolumes, func(v *corev1.PersistentVolume) {
		if plan.Keeps(v) {
			k.refs = append(k.refs, *v.Spec.ClaimRef)
		}
	})
}

// mayProvision reports whether a claim that is to be provisioned may be provisioned now. One that kube-controller-manager has asked no
// provisioner for may be bound to a volume that is kept for it, as long as that is not known to be absent. Then it waits
// until a provisioner was asked, which the watch brings.
//
// A volume that is kept from now on comes too late, as it does for a claim for which a provisioner was asked.
func (c *Controller) mayProvision(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	if !plan.OnlySelected(claim) {
		return true, nil
	}
	kept, err := c.kept.mayBe(ctx, c.API, claim)
	if err != nil {
		return false, c.apiFailed(report.Claim(claim), err)
	}
	return !kept, nil
}
