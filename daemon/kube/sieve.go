package kube

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Object is a pointer to a Kubernetes object.
type Object interface {
	comparable
	runtime.Object
	metav1.Object
}

// ListWatcher reads one resource of the API.
type ListWatcher interface {
	List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// Sieve follows a resource and holds only what keep says yes to. Everything else is forgotten as
// soon as it was read, one page at a time.
//
// Objects are shared with everybody who asks: do not change them. Of each only what lean leaves is held.
type Sieve[T Object] struct {
	source   ListWatcher
	keep     func(T) bool
	lean     func(T) T // a copy without what is not read: it holds nothing of the page or event that it came in
	onChange func(old, new T)
	fail     func(error) // an error was met again
	fine     func()      // all is well (again)
	outage   *outage
	small    bool // few objects: read whole with a watch (watchlist.go)

	synced  chan struct{}
	refresh chan struct{}
	heard   atomic.Int64 // nanoseconds since the epoch
	watched atomic.Bool  // a watch is under way

	mu    sync.RWMutex
	items map[string]T

	// Of the goroutine of Run alone.
	version string    // of the resource: what the list and the events since have told
	witness witness   // of its history
	doubt   bool      // whether the server still is as far as that
	began   time.Time // the list or the watch under way
	pace    pace

	length, reading int  // objects of the last whole list, and of the one that is being read
	brokenStreams   int  // watch-lists one after the other that had no response, or broke off: something on the way may keep them
	refusesStreams  bool // the server does not know watch-lists
}

// NewSieve makes a sieve that does nothing before Run. A nil keep keeps all. onChange may be nil; a
// nil old is something new, a nil new is gone (deleted, or not kept any more). An object that was
// replaced by one of the same name is told as gone and then as new.
func NewSieve[T Object](from ListWatcher, keep func(T) bool, onChange func(old, new T)) *Sieve[T] {
	if keep == nil {
		keep = func(T) bool { return true }
	}
	if onChange == nil {
		onChange = func(_, _ T) {}
	}
	return &Sieve[T]{
		source: from, keep: keep, lean: unmanaged[T], onChange: onChange,
		fail: func(error) {}, fine: func() {}, outage: &outage{},
		synced: make(chan struct{}), refresh: make(chan struct{}, 1),
		items: map[string]T{}, pace: usualPace,
	}
}

// Synced is closed when the first list is complete and onChange was told of all of it.
func (s *Sieve[T]) Synced() <-chan struct{} { return s.synced }

// Get is the object with the key "name" or "namespace/name".
func (s *Sieve[T]) Get(key string) (T, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	item, kept := s.items[key]
	return item, kept
}

// List is everything that is kept, in no order.
func (s *Sieve[T]) List() []T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]T, 0, len(s.items))
	for _, item := range s.items {
		all = append(all, item)
	}
	return all
}

// Refresh has the whole list read again, so that keep is asked about each object once more. It does
// not wait for that.
func (s *Sieve[T]) Refresh() {
	select {
	case s.refresh <- struct{}{}:
	default:
	}
}

// Watched says whether a watch is under way. While it is not, what is kept is only remembered: the
// server may be another one by now, or one whose data was restored.
func (s *Sieve[T]) Watched() bool { return s.watched.Load() }

// LastHeard is when the API server last answered about this resource: with a page, an event, a
// bookmark, or by accepting a watch. Zero is never. A watch on which nothing happens may rightly be
// silent until it ends: see MaxSilence.
func (s *Sieve[T]) LastHeard() time.Time {
	if at := s.heard.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// take notes a page of the list: each kept object is put, and its key is added to fresh.
func (s *Sieve[T]) take(page runtime.Object, fresh map[string]bool) error {
	return meta.EachListItem(page, func(o runtime.Object) error {
		item, ok := o.(T)
		if ok {
			s.witness.saw(item)
			s.reading++
		}
		if ok && s.keep(item) {
			fresh[keyOf(item)] = true
			s.put(item)
		}
		return nil
	})
}

// forget drops what a complete list did not have: it was deleted while nobody watched.
func (s *Sieve[T]) forget(fresh map[string]bool) {
	for _, item := range s.List() {
		if !fresh[keyOf(item)] {
			s.drop(item)
		}
	}
}

func (s *Sieve[T]) put(item T) {
	item = s.lean(item)
	var none T
	old, known := s.Get(keyOf(item))
	switch {
	case known && old.GetUID() != item.GetUID():
		s.drop(old)
		old = none
	case known && old.GetResourceVersion() == item.GetResourceVersion():
		return
	}
	s.mu.Lock()
	s.items[keyOf(item)] = item
	s.mu.Unlock()
	s.onChange(old, item)
}

// unmanaged is a copy without managedFields.
func unmanaged[T Object](item T) T {
	copied, _ := item.DeepCopyObject().(T)
	copied.SetManagedFields(nil)
	return copied
}

func (s *Sieve[T]) drop(item T) {
	var none T
	old, known := s.Get(keyOf(item))
	if !known {
		return
	}
	s.mu.Lock()
	delete(s.items, keyOf(item))
	s.mu.Unlock()
	s.onChange(old, none)
}

func keyOf(o metav1.Object) string {
	if namespace := o.GetNamespace(); namespace != "" {
		return namespace + "/" + o.GetName()
	}
	return o.GetName()
}
