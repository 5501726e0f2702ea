package claimfilter

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// How many claims of a kind are held that are not known to be this node's: all of them in a cluster
// whose daemons work and whose claims fit. A user who may make claims in one namespace cannot use
// up the memory for all.
const (
	mostOfNamespace = 256
	mostInAll       = 4096
)

// room holds a bounded number of claims of a kind.
type room struct {
	is func(*corev1.PersistentVolumeClaim) bool

	mu     sync.Mutex
	held   map[types.UID]string // the namespaces
	spaces map[string]int       // how many of each
	missed bool                 // some were not held for lack of memory
}

func newRoom(is func(*corev1.PersistentVolumeClaim) bool) *room {
	return &room{is: is, held: map[types.UID]string{}, spaces: map[string]int{}}
}

// admit reports whether a claim is of the kind, and is held.
func (r *room) admit(c *corev1.PersistentVolumeClaim) bool {
	if !r.is(c) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, held := r.held[c.UID]; held {
		return true
	}
	if len(r.held) >= mostInAll || r.spaces[c.Namespace] >= mostOfNamespace {
		r.missed = true
		return false
	}
	r.held[c.UID] = c.Namespace
	r.spaces[c.Namespace]++
	return true
}

// changed is called with each change of a claim that is held, and reports whether those that were
// not held should be read again.
func (r *room) changed(was, now *corev1.PersistentVolumeClaim) (again bool) {
	if was == nil || now != nil && r.is(now) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	namespace, held := r.held[was.UID]
	if !held {
		return false
	}
	delete(r.held, was.UID)
	if r.spaces[namespace]--; r.spaces[namespace] == 0 {
		delete(r.spaces, namespace)
	}
	again = r.missed && len(r.held) < mostInAll/2 && r.spaces[namespace] < mostOfNamespace/2
	r.missed = r.missed && !again
	return again
}
