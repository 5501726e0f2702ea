// Package claimfilter decides which claims of the cluster the daemon's informer holds: those that
// concern this node, and a bounded number of those of other nodes and of those without a node. Of
// the claims that have their volume only those concern a node that request more than they have. The
// number of pods that are held is bounded likewise. It will not send a request, or read a claim
// itself.
package claimfilter

import (
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// Filter is which claims are held.
type Filter struct {
	self    plan.Self
	pools   []plan.Pool
	classes func(name string) (*storagev1.StorageClass, bool)
	volumes func(name string) bool
	common  bool        // a pool is not of one node
	early   atomic.Bool // a claim grows whose volume was not watched
	unknown atomic.Bool // a claim that waits for a consumer has a class that was not known

	others   *claims // of other nodes, that have no volume yet
	unplaced *claims // for which the scheduler has chosen no node
	growing  *claims // that request more than they have, and may be any node's
	pods     *room[*corev1.Pod]
}

type claims = room[*corev1.PersistentVolumeClaim]

// New returns a Filter that holds no claim of another node yet. classes returns the StorageClass of
// this name, and volumes reports whether a volume of this name is this node's.
func New(self plan.Self, pools []plan.Pool, classes func(name string) (*storagev1.StorageClass, bool), volumes func(name string) bool) *Filter {
	f := &Filter{self: self, pools: pools, classes: classes, volumes: volumes, common: slices.ContainsFunc(pools, plan.Pool.OfAllNodes)}
	f.others = newRoom(self.KeepClaimOfOther)
	f.unplaced = newRoom(f.isUnplaced)
	f.growing = newRoom(func(c *corev1.PersistentVolumeClaim) bool { return self.KeepGrowingOfAll(c, f.ofAllNodes(c)) })
	f.pods = newRoom(func(p *corev1.Pod) bool {
		return p.DeletionTimestamp == nil && len(plan.PodClaims(p)) > 0
	})
	return f
}

// AllHeld reports whether all claims of a namespace are held that wait for the scheduler to choose
// a node.
func (f *Filter) AllHeld(namespace string) bool {
	f.unplaced.mu.Lock()
	defer f.unplaced.mu.Unlock()
	return f.unplaced.has(namespace)
}

// KeepPod reports whether a pod of this node is held: it uses claims.
func (f *Filter) KeepPod(p *corev1.Pod) bool { return f.pods.admit(p) }

// PodChanged is Changed for a pod.
func (f *Filter) PodChanged(was, now *corev1.Pod) bool { return f.pods.changed(was, now) }

// Keep reports whether a claim is held.
func (f *Filter) Keep(c *corev1.PersistentVolumeClaim) bool {
	return f.self.KeepClaim(c) && f.asked(c) || f.ofAllNodes(c) && f.self.KeepClaimOfAll(c) || f.others.admit(c) || f.unplaced.admit(c) ||
		f.self.KeepGrowing(c) || f.growing.admit(c) || f.here(c)
}

// asked reports whether a provisioner was asked for a claim, or will be as far as its class tells:
// the other claims of its pod may wait for it.
// For a moment the claims of all provisioners that wait for a consumer have a node and none was
// asked: of those only the claims of classes that are known are held. One whose class comes later
// is read again then, and is held at the latest when kube-controller-manager asked for it.
func (f *Filter) asked(c *corev1.PersistentVolumeClaim) bool {
	if !plan.OnlySelected(c) {
		return true
	}
	class, known := f.classes(plan.ClassName(c))
	if !known {
		f.unknown.Store(true)
	}
	return known && (plan.Selectable(class) || plan.IsCopy(c) && plan.Chosen(c) == "" && f.self.TakesClones(class))
}

// here reports whether a claim asks for something whose volume is this node's, whichever node the
// claim names: the node may have had another name.
func (f *Filter) here(c *corev1.PersistentVolumeClaim) bool {
	if !plan.Asks(c) {
		return false
	}
	here := f.volumes(c.Spec.VolumeName)
	if !here {
		f.early.Store(true)
	}
	return here
}

// Early reports whether the claims have to be read again once the volumes are known: of one that
// grows it was not known whether its volume is this node's.
func (f *Filter) Early() bool { return f.early.Swap(false) }

// isUnplaced reports whether a claim waits for the scheduler to choose a node. If it fits on none,
// one of the daemons tells it, and a pod of it may name this node itself.
func (f *Filter) isUnplaced(c *corev1.PersistentVolumeClaim) bool {
	if !plan.NodeOpen(c) { // nearly all claims of the cluster
		return false
	}
	class, known := f.classes(plan.ClassName(c))
	if !known {
		f.unknown.Store(true)
	}
	return known && f.waits(class)
}

// waits reports whether claims of a class wait for a pod, and are ours.
func (f *Filter) waits(class *storagev1.StorageClass) bool {
	return f.self.Serves(class.Provisioner) && plan.WaitsForConsumer(class)
}

// ofAllNodes reports whether a claim's class leads to a pool whose claims concern every daemon.
func (f *Filter) ofAllNodes(c *corev1.PersistentVolumeClaim) bool {
	if !f.common { // the usual case, for each claim of the cluster
		return false
	}
	class, known := f.classes(plan.ClassName(c))
	return known && f.classOfAll(class)
}

func (f *Filter) classOfAll(class *storagev1.StorageClass) bool {
	pool, refusal := f.self.Resolve(class, f.pools)
	return refusal == nil && pool.OfAllNodes()
}

// ClassChanged reports whether the claims have to be read again because a class was added or
// changed, also those that are not held: which of them are depends on their classes. now is nil for
// a class that was deleted.
func (f *Filter) ClassChanged(now *storagev1.StorageClass) bool {
	return now != nil && (f.common && f.classOfAll(now) || f.waits(now) && f.unknown.Swap(false))
}

// Changed is called with each change of a claim that is held, and reports whether the claims have
// to be read again, because there is room for those that were not held. now is nil for a claim that
// went.
func (f *Filter) Changed(was, now *corev1.PersistentVolumeClaim) bool {
	others, unplaced, growing := f.others.changed(was, now), f.unplaced.changed(was, now), f.growing.changed(was, now)
	return others || unplaced || growing
}
