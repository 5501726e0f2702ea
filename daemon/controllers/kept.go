package controllers

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
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
	k := &keptVolumes{held: make(chan struct{}, 1), next: newKeptRead()}
	k.index.changed = make(chan struct{}, 1)
	k.index.known.Store(&KeptIndex{})
	return k
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
	return !kept && err == nil, err
}

// KeptIndex is what is known of a policy by which the API server labels volumes that are kept for
// claims.
type KeptIndex struct {
	// Identity tells it from every other that the cluster had, "" if there is none that labels each
	// kept volume from now on.
	Identity string `json:"identity"`
	// Before are the claims for which volumes are kept that it has not labelled: they are from
	// before it, and were not written since.
	Before []corev1.ObjectReference `json:"before,omitempty"`
}

const (
	indexLook    = 10 * time.Minute // for a policy in a cluster that has none, and for one that does not label
	indexFailed  = 30 * time.Second // after an error
	indexUntried = time.Minute      // where this node has no volume to see by whether the API server labels volumes
	indexSettle  = 10 * time.Second // API servers take a new policy into use once a second
	indexSpan    = 30 * time.Second // between the first readings of all volumes by the cluster's daemons (plan.StaggerDelay)
	indexAgain   = 2 * time.Hour    // until all volumes are read again
	indexPace    = 100              // in a cluster of more nodes than that, they are read less often
	beforeAtMost = 1000             // volumes from before the policy; with more of them it is not used
)

// keptIndex reads the volumes that are kept for claims by the label that a policy of the cluster
// writes on them. That is possible if the policy has labelled each kept volume that was written
// since all volumes were read, and the others are known from then. A policy labels all from the
// time when each API server applies it until it is changed or removed, which changes its identity.
type keptIndex struct {
	known   atomic.Pointer[KeptIndex]
	changed chan struct{} // by its end

	// Of the one that follows it.
	seen string    // the identity that was seen last
	full time.Time // when all volumes are to be read
}

// read reads the volumes that are kept for claims of these names. whole reports that these were
// all: the policy was in force until after they were read.
func (x *keptIndex) read(ctx context.Context, api Reader, claims []string) (refs []corev1.ObjectReference, whole bool, err error) {
	known := x.known.Load()
	if known.Identity == "" {
		return nil, false, nil
	}
	refs = slices.Clone(known.Before)
	if err := api.EachKept(ctx, claims, func(v *corev1.PersistentVolume) {
		if plan.Keeps(v) {
			refs = append(refs, *v.Spec.ClaimRef)
		}
	}); err != nil {
		return nil, false, err
	}
	now, err := api.VolumeIndex(ctx)
	if err != nil {
		return nil, false, err
	}
	if now != known.Identity { // nothing is read by the label until an index is found whole again
		x.known.CompareAndSwap(known, &KeptIndex{})
		wake.Signal(x.changed)
		return nil, false, nil
	}
	return refs, true, nil
}

// LookAtKeptIndex has the daemon look now for the policy by which volumes are labelled. One that is
// in use is looked at with each read.
func (c *cluster) LookAtKeptIndex() {
	if c.kept.index.known.Load().Identity == "" {
		wake.Signal(c.kept.index.changed)
	}
}

// FollowKept finds out, until ctx ends, whether volumes that are kept for claims can be read by
// their label. known is from before a restart; keep is called with what is to be known after the
// next one. Without LookAtKeptIndex the first look is after some minutes: in a cluster that has no
// policy a start costs no request.
func (c *cluster) FollowKept(ctx context.Context, known KeptIndex, keep func(KeptIndex)) {
	x := &c.kept.index
	x.known.Store(&KeptIndex{known.Identity, known.Before})
	x.full = time.Now().Add(indexAgain/2 + rand.N(indexAgain/2))
	for wait := indexWait(); ; wait = c.followKept(ctx) {
		if ctx.Err() != nil {
			return
		}
		if now := *x.known.Load(); now.Identity != known.Identity || !slices.Equal(now.Before, known.Before) {
			c.tellIndex(known.Identity, now.Identity)
			keep(now)
			known = now
		}
		if !wake.Wait(ctx, wait, x.changed) {
			return
		}
	}
}

func (c *cluster) tellIndex(was, now string) {
	switch {
	case (was == "") == (now == ""):
	case now == "":
		c.Log.Info("pre-bound volumes are not selected by a label any more")
	default:
		c.Log.Info("pre-bound volumes are selected by the label that the policy " +
			"hostpath-provisioner-volumes writes")
	}
}

// followKept looks at the policy, and reads all volumes if that is due. It returns when to look
// again.
func (c *cluster) followKept(ctx context.Context) (wait time.Duration) {
	x := &c.kept.index
	identity, err := c.API.VolumeIndex(ctx)
	if err != nil {
		return indexFailed
	}
	using := x.known.Load().Identity
	if using != identity {
		x.known.Store(&KeptIndex{})
		using = ""
	}
	if using == "" && x.seen != identity { // it is new
		x.seen, x.full = identity, time.Now()
		if identity != "" {
			nodes := c.countedLately(ctx)
			x.full = x.full.Add(indexSettle + plan.StaggerDelay(identity, c.Node, nodes, indexSpan*pace(nodes)))
		}
	}
	switch wait := time.Until(x.full); {
	case identity == "":
		return indexWait()
	case wait > 0:
		return min(wait, indexLook)
	}
	return c.auditKept(ctx, identity, using != "")
}

// indexWait is until the next look for a policy in a cluster that has none.
func indexWait() time.Duration { return indexLook/2 + rand.N(indexLook/2) }

// pace is how many times less often each daemon of a large cluster reads all volumes, so that what
// the API server does for that grows with the volumes and not with volumes times nodes.
func pace(nodes int) time.Duration { return time.Duration(max(1, nodes/indexPace)) }

// auditKept reads all volumes of the cluster, if the API server is seen to label one of this node,
// and has the index used then. An index that is in use already stays in use where there is no
// volume to see that by.
func (c *cluster) auditKept(ctx context.Context, identity string, using bool) (wait time.Duration) {
	x := &c.kept.index
	labels, tried, err := c.labelsVolumes(ctx)
	switch {
	case err != nil:
		return indexFailed
	case !tried && !using:
		return indexUntried
	case tried && !labels:
		x.known.Store(&KeptIndex{})
		return indexLook
	}
	found := KeptIndex{Identity: identity}
	if err := c.API.EachMissed(ctx, func(v *corev1.PersistentVolume) {
		if ref := v.Spec.ClaimRef; len(found.Before) <= beforeAtMost {
			found.Before = append(found.Before, corev1.ObjectReference{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID})
		}
	}); err != nil {
		return indexFailed
	}
	if x.seen = ""; len(found.Before) > beforeAtMost {
		c.Log.Warn("more than " + words.Count(beforeAtMost, "volume") + " are kept for claims and not labelled: they are from before the policy")
		found, x.seen = KeptIndex{}, identity
	}
	x.known.Store(&found)
	x.full = time.Now().Add((indexAgain/2 + rand.N(indexAgain/2)) * pace(c.countedLately(ctx)))
	return indexLook
}

// labelsVolumes reports whether the API server labels volumes, which it does not show but by a
// volume. tried is false if this node has none.
func (c *cluster) labelsVolumes(ctx context.Context) (labels, tried bool, err error) {
	for _, v := range c.Listers.Volumes.List() {
		if v.DeletionTimestamp == nil {
			labels, err = c.API.TryVolumeIndex(ctx, v)
			return labels, true, err
		}
	}
	return false, false, nil
}
