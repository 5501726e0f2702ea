package daemon

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// How many claims of other nodes that have no volume yet are held: all of them in a cluster whose daemons work.
// A user who may make claims in one namespace cannot use up the memory for all.
const (
	othersOfNamespace = 256
	othersInAll       = 4096
)

// others is which claims of other nodes are held.
type others struct {
	is func(*corev1.PersistentVolumeClaim) bool

	mu     sync.Mutex
	held   map[types.UID]string // the namespaces
	spaces map[string]int       // how many of each
	missed bool                 // some were not held for lack of memory
}

func newOthers(is func(*corev1.PersistentVolumeClaim) bool) *others {
	return &others{is: is, held: map[types.UID]string{}, spaces: map[string]int{}}
}

// admit reports whether a claim is one of another node, and is held.
func (o *others) admit(c *corev1.PersistentVolumeClaim) bool {
	if !o.is(c) {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, held := o.held[c.UID]; held {
		return true
	}
	if len(o.held) >= othersInAll || o.spaces[c.Namespace] >= othersOfNamespace {
		o.missed = true
		return false
	}
	o.held[c.UID] = c.Namespace
	o.spaces[c.Namespace]++
	return true
}

// changed is called with each claim that is held, and reports whether those that were not held should be read
// again.
func (o *others) changed(was, now *corev1.PersistentVolumeClaim) (again bool) {
	if was == nil || now != nil && o.is(now) {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	namespace, held := o.held[was.UID]
	if !held {
		return false
	}
	delete(o.held, was.UID)
	if o.spaces[namespace]--; o.spaces[namespace] == 0 {
		delete(o.spaces, namespace)
	}
	again = o.missed && len(o.held) < othersInAll/2 && o.spaces[namespace] < othersOfNamespace/2
	o.missed = o.missed && !again
	return again
}
