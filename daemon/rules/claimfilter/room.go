package claimfilter

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// How many claims or pods of a kind are held that are not known to be this node's: all of them in a cluster
// whose daemons work and whose claims fit. A user who may make claims in one namespace cannot use
// up the memory for all.
const (
	mostOfNamespace = 256
	mostInAll       = 4096
)

type object interface {
	comparable
	metav1.Object
}

// room holds a bounded number of objects of a kind.
type room[T object] struct {
	is func(T) bool

	mu     sync.Mutex
	held   map[types.UID]string // the namespaces
	spaces map[string]int       // how many of each
	missed bool                 // some were not held for lack of memory
}

func newRoom[T object](is func(T) bool) *room[T] {
	return &room[T]{is: is, held: map[types.UID]string{}, spaces: map[string]int{}}
}

// admit reports whether an object is of the kind, and is held.
func (r *room[T]) admit(c T) bool {
	if !r.is(c) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, held := r.held[c.GetUID()]; held {
		return true
	}
	if !r.has(c.GetNamespace()) {
		r.missed = true
		return false
	}
	r.held[c.GetUID()] = c.GetNamespace()
	r.spaces[c.GetNamespace()]++
	return true
}

// has reports whether there is room for one more of a namespace.
func (r *room[T]) has(namespace string) bool {
	return len(r.held) < mostInAll && r.spaces[namespace] < mostOfNamespace
}

// changed is called with each change of an object that is held, and reports whether those that were
// not held should be read again.
func (r *room[T]) changed(was, now T) (again bool) {
	var none T
	if was == none || now != none && r.is(now) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	namespace, held := r.held[was.GetUID()]
	if !held {
		return false
	}
	delete(r.held, was.GetUID())
	if r.spaces[namespace]--; r.spaces[namespace] == 0 {
		delete(r.spaces, namespace)
	}
	again = r.missed && len(r.held) < mostInAll/2 && r.spaces[namespace] < mostOfNamespace/2
	r.missed = r.missed && !again
	return again
}
