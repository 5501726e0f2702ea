package controllers

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

const (
	// fewVolumes is how many volumes of the cluster are read at most before a claim is provisioned
	// that no provisioner was asked for:
	// 0.7 MB of the CSI volumes of test/bench, before compression.
	fewVolumes = 500
	// manyAgain is for how long a cluster has more than that after it was seen to.
	manyAgain = 10 * time.Minute
)

// keptVolumes finds which volumes of the cluster are kept for claims (plan.Keeps): among those that
// the API server selects, if it has labelled all, or else among all volumes of the cluster if they
// are few.
type keptVolumes struct {
	index keptIndex
	held  chan struct{} // by the claim that reads
	many  time.Time     // when there were seen to be too many volumes

	mu   sync.Mutex
	next *keptRead // has not begun
}

// keptRead is one read of the kept volumes, for the claims that came before it began.
type keptRead struct {
	names map[string]bool // of these claims

	done bool
	refs []corev1.ObjectReference
	all  bool // these are all that are kept for claims of these names
	err  error
}

func newKeptRead() *keptRead { return &keptRead{names: map[string]bool{}} }

func newKeptVolumes() *keptVolumes {
	return &keptVolumes{held: make(chan struct{}, 1), next: newKeptRead(), index: keptIndex{changed: make(chan struct{}, 1)}}
}

// mayBe reports whether a volume may be kept for a claim, by a read that begins after the call.
// Claims that come during a read share the next one.
func (k *keptVolumes) mayBe(ctx context.Context, api Reader, claim *corev1.PersistentVolumeClaim) (bool, error) {
	return k.found(ctx, api, k.join(claim), claim)
}

// join returns the next read, which is for this claim, too.
func (k *keptVolumes) join(claim *corev1.PersistentVolumeClaim) *keptRead {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.next.names[claim.Name] = true
	return k.next
}

// found is mayBe by a read that the claim has joined. The first of its claims that comes here makes
// it.
func (k *keptVolumes) found(ctx context.Context, api Reader, r *keptRead, claim *corev1.PersistentVolumeClaim) (bool, error) {
	select {
	case k.held <- struct{}{}:
		defer func() { <-k.held }()
	case <-ctx.Done():
		return true, ctx.Err()
	}
	if !r.done {
		k.mu.Lock()
		k.next = newKeptRead()
		k.mu.Unlock()
		k.read(ctx, api, r)
		r.done = true
	}
	return !r.all || slices.ContainsFunc(r.refs, func(ref corev1.ObjectReference) bool { return plan.KeptFor(ref, claim) }), r.err
}

func (k *keptVolumes) read(ctx context.Context, api Reader, r *keptRead) {
	r.refs, r.all, r.err = k.index.read(ctx, api, slices.Collect(maps.Keys(r.names)))
	if r.all || r.err != nil || time.Since(k.many) < manyAgain {
		return
	}
	began := time.Now()
	r.all, r.err = api.FewVolumes(ctx, fewVolumes, func(v *corev1.PersistentVolume) {
		if plan.Keeps(v) {
			r.refs = append(r.refs, *v.Spec.ClaimRef)
		}
	})
	if r.err == nil && !r.all {
		k.many = began
	}
}

// mayProvision reports whether a claim that is to be provisioned may be provisioned now. One that
// kube-controller-manager has asked no provisioner for may be bound to a volume that is kept for
// it, as long as that is not known to be absent. Then it waits until a provisioner was asked, which
// the watch brings.
//
// A volume that is kept from now on comes too late, as it does for a claim for which a provisioner
// was asked.
func (c *cluster) mayProvision(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	if !plan.OnlySelected(claim) {
		return true, nil
	}
	kept, err := c.kept.mayBe(ctx, c.API, claim)
	if err != nil {
		return false, err
	}
	return !kept, nil
}
