// Package claimfilter decides which claims of the cluster the daemon's informer holds: those that concern this node,
// and a bounded number of those of other nodes. It will not send a request, or read a claim itself.
package claimfilter

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
)

// How many claims of other nodes that have no volume yet are held: all of them in a cluster whose daemons work.
// A user who may make claims in one namespace cannot use up the memory for all.
const (
	othersOfNamespace = 256
	othersInAll       = 4096
)

// Filter is which claims are held.
type Filter struct {
	self    plan.Self
	pools   []plan.Pool
	classes func(name string) (*storagev1.StorageClass, bool)
	common  bool // a pool is not of one node

	mu     sync.Mutex
	others map[types.UID]string // claims of other nodes that are held: their namespaces
	spaces map[string]int       // how many of each
	missed bool                 // some were not held for lack of memory
}

// New returns a Filter that holds no claim of another node yet. classes returns the StorageClass of this name.
func New(self plan.Self, pools []plan.Pool, classes func(name string) (*storagev1.StorageClass, bool)) *Filter {
	return &Filter{
		self: self, pools: pools, classes: classes, common: slices.ContainsFunc(pools, plan.Pool.OfAllNodes),
		others: map[types.UID]string{}, spaces: map[string]int{},
	}
}

// Keep reports whether a claim is held.
func (f *Filter) Keep(c *corev1.PersistentVolumeClaim) bool {
	return f.self.KeepClaim(c) || f.ofAllNodes(c) && f.self.KeepClaimOfAll(c) || f.admit(c)
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

// ClassChanged reports whether the claims have to be read again because a class was added or changed, also those that
// are not held: which of them are depends on their classes. now is nil for a class that was deleted.
func (f *Filter) ClassChanged(now *storagev1.StorageClass) bool {
	return f.common && now != nil && f.classOfAll(now)
}

// admit reports whether a claim is one of another node, and is held.
func (f *Filter) admit(c *corev1.PersistentVolumeClaim) bool {
	if !f.self.KeepClaimOfOther(c) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, held := f.others[c.UID]; held {
		return true
	}
	if len(f.others) >= othersInAll || f.spaces[c.Namespace] >= othersOfNamespace {
		f.missed = true
		return false
	}
	f.others[c.UID] = c.Namespace
	f.spaces[c.Namespace]++
	return true
}

// Changed is called with each change of a claim that is held, and reports whether the claims have to be read again,
// because there is room for those that were not held. now is nil for a claim that went.
func (f *Filter) Changed(was, now *corev1.PersistentVolumeClaim) bool {
	if was == nil || now != nil && f.self.KeepClaimOfOther(now) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	namespace, held := f.others[was.UID]
	if !held {
		return false
	}
	delete(f.others, was.UID)
	if f.spaces[namespace]--; f.spaces[namespace] == 0 {
		delete(f.spaces, namespace)
	}
	again := f.missed && len(f.others) < othersInAll/2 && f.spaces[namespace] < othersOfNamespace/2
	f.missed = f.missed && !again
	return again
}
