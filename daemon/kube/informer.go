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

// Informer follows a resource and holds only what keep says yes to. Everything else is forgotten as
// soon as it was read, one page at a time.
//
// Objects are shared with everybody who asks: do not change them. Of each only what lean leaves is held.
type Informer[T Object] struct {
	source     ListWatcher
	filter     func(T) bool
	transform  func(T) T // a copy without what is not read: it holds nothing of the page or event that it came in
	onChange   func(old, new T)
	onError    func(error) // an error was met again
	onHealthy  func()      // all is well (again)
	breaker    *breaker
	fewObjects bool // few objects: read whole with a watch (watchlist.go)

	synced  chan struct{}
	relist  chan struct{}
	contact atomic.Int64 // nanoseconds since the epoch
	watched atomic.Bool  // a watch is under way

	mu    sync.RWMutex
	items map[string]T

	// Of the goroutine of Run alone.
	version    string    // of the resource: what the list and the events since have told
	lastChange change    // of its history
	mustVerify bool      // whether the server still is as far as that
	started    time.Time // the list or the watch under way
	timings    timings

	listLength, listed int  // objects of the last whole list, and of the one that is being read
	failedWatchLists   int  // watch-lists one after the other that had no response, or broke off: something between may buffer them
	noWatchList        bool // the server does not know watch-lists
}

// NewInformer makes a sieve that does nothing before Run. A nil keep keeps all. onChange may be nil; a
// nil old is something new, a nil new is gone (deleted, or not kept any more). An object that was
// replaced by one of the same name is told as gone and then as new.
func NewInformer[T Object](from ListWatcher, keep func(T) bool, onChange func(old, new T)) *Informer[T] {
	if keep == nil {
		keep = func(T) bool { return true }
	}
	if onChange == nil {
		onChange = func(_, _ T) {}
	}
	return &Informer[T]{
		source: from, filter: keep, transform: unmanaged[T], onChange: onChange,
		onError: func(error) {}, onHealthy: func() {}, breaker: &breaker{},
		synced: make(chan struct{}), relist: make(chan struct{}, 1),
		items: map[string]T{}, timings: defaultTimings,
	}
}

// Synced is closed when the first list is complete and onChange was told of all of it.
func (s *Informer[T]) Synced() <-chan struct{} { return s.synced }

// Get is the object with the key "name" or "namespace/name".
func (s *Informer[T]) Get(key string) (T, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	item, kept := s.items[key]
	return item, kept
}

// List is everything that is kept, in no order.
func (s *Informer[T]) List() []T {
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
func (s *Informer[T]) Relist() {
	select {
	case s.relist <- struct{}{}:
	default:
	}
}

// Watched says whether a watch is under way. While it is not, what is kept is only remembered: the
// server may be another one by now, or one whose data was restored.
func (s *Informer[T]) Watched() bool { return s.watched.Load() }

// LastContact is when the API server last answered about this resource: with a page, an event, a
// bookmark, or by accepting a watch. Zero is never. A watch on which nothing happens may rightly be
// silent until it ends: see StaleAfter.
func (s *Informer[T]) LastContact() time.Time {
	if at := s.contact.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// take notes a page of the list: each kept object is put, and its key is added to fresh.
func (s *Informer[T]) addPage(page runtime.Object, fresh map[string]bool) error {
	return meta.EachListItem(page, func(o runtime.Object) error {
		item, ok := o.(T)
		if ok {
			s.lastChange.observe(item)
			s.listed++
		}
		if ok && s.filter(item) {
			fresh[keyOf(item)] = true
			s.store(item)
		}
		return nil
	})
}

// forget drops what a complete list did not have: it was deleted while nobody watched.
func (s *Informer[T]) removeUnlisted(fresh map[string]bool) {
	for _, item := range s.List() {
		if !fresh[keyOf(item)] {
			s.remove(item)
		}
	}
}

func (s *Informer[T]) store(item T) {
	item = s.transform(item)
	var none T
	old, known := s.Get(keyOf(item))
	switch {
	case known && old.GetUID() != item.GetUID():
		s.remove(old)
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

func (s *Informer[T]) remove(item T) {
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
