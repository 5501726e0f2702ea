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

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
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

// Informer lists and watches a resource, and keeps the objects that its filter passes.
//
// It differs from client-go's SharedInformer (tools/cache) in this: an object that does not pass
// the filter is dropped as soon as it was decoded, one page at a time; there is one handler, and no
// resync; and before it continues a watch it verifies that the server still has the history that it
// knows (watchstart.go).
//
// The objects of Get and List are shared: do not change them. They are as transform returned them.
type Informer[T Object] struct {
	source     ListWatcher
	filter     func(T) bool
	transform  func(T) T // returns a copy of what is read of an object; it must not refer to the page or event of the original
	onChange   func(old, new T)
	onError    func(error) // is called for the second error in a row, and for each after it
	onHealthy  func()      // is called when a watch works
	breaker    *breaker
	fewObjects bool                   // the whole resource is read with the watch (watchstart.go)
	selects    atomic.Pointer[string] // the selector of the next list (Select); nil: as before

	synced  chan struct{}
	relist  chan struct{}
	contact atomic.Int64 // nanoseconds since the epoch
	// wanted counts the lists that were requested (Relist), and had those that were read since.
	wanted, had atomic.Int64
	watching    atomic.Bool

	mu    sync.RWMutex
	items map[string]T

	// The goroutine of Run alone uses what follows.
	selector   string    // a label selector; "" is all
	version    string    // the resource version of the last list or event
	lastChange change    // the last change that is known (watchstart.go)
	mustVerify bool      // the server may have another history than the known one
	started    time.Time // of the request under way
	reading    int64     // what wanted was when the list under way began
	timings    timings

	listLength, listed int  // objects in the last whole list, and in the one under way
	failedWatchLists   int  // in a row, without a response or broken off: a proxy may buffer them
	noWatchList        bool // the server does not support watch-lists
}

// NewInformer returns an informer that sends no request before Run. A nil filter passes every
// object.
//
// onChange may be nil. It is called by one goroutine, with a nil old for an object that was added,
// and with a nil new for one that was deleted or does not pass the filter any more. An object that
// was replaced by another one of the same name is removed and then added.
func NewInformer[T Object](from ListWatcher, filter func(T) bool, onChange func(old, new T)) *Informer[T] {
	if filter == nil {
		filter = func(T) bool { return true }
	}
	if onChange == nil {
		onChange = func(_, _ T) {}
	}
	return &Informer[T]{
		source: from, filter: filter, transform: withoutManagedFields[T], onChange: onChange,
		onError: func(error) {}, onHealthy: func() {}, breaker: &breaker{},
		synced: make(chan struct{}), relist: make(chan struct{}, 1),
		items: map[string]T{}, timings: defaultTimings,
	}
}

// Synced returns a channel that is closed when the first list is complete and onChange was called
// for each of its objects.
func (s *Informer[T]) Synced() <-chan struct{} { return s.synced }

// Get returns the object with the key "name" or "namespace/name".
func (s *Informer[T]) Get(key string) (T, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	item, ok := s.items[key]
	return item, ok
}

// List returns all objects that are kept, in no order.
func (s *Informer[T]) List() []T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]T, 0, len(s.items))
	for _, item := range s.items {
		all = append(all, item)
	}
	return all
}

// Relist requests a new list, so that the filter is asked about each object again. It does not wait
// for the list.
func (s *Informer[T]) Relist() {
	s.wanted.Add(1)
	wake.Signal(s.relist)
}

// Whole reports whether the list that was requested last was read to its end.
func (s *Informer[T]) Whole() bool { return s.had.Load() == s.wanted.Load() }

// Select requests a new list, and has the API server leave out of it and of what follows all
// objects that a label selector does not match; "" is all objects. An object that is kept and does
// not match is removed. It does not wait for the list.
func (s *Informer[T]) Select(labels string) {
	s.selects.Store(&labels)
	s.Relist()
}

// takeSelector has the next list read by the selector of Select, and reports whether that is
// another one than before: then the last version is no start for a watch.
func (s *Informer[T]) takeSelector() (other bool) {
	next := s.selects.Swap(nil)
	if next == nil || *next == s.selector {
		return false
	}
	s.selector, s.listLength = *next, 0 // the length of another list
	return true
}

// takeRelist is called before a list, which is the one that was requested until then: by the last
// selector, too.
func (s *Informer[T]) takeRelist() {
	select {
	case <-s.relist:
	default:
	}
	s.reading = s.wanted.Load()
	s.takeSelector()
}

// Watched reports whether a watch is under way. While none is, the kept objects may be stale: the
// server may have been replaced, or its data restored from a backup.
func (s *Informer[T]) Watched() bool { return s.watching.Load() }

// LastContact returns when the API server last sent a page, an event or a bookmark of this
// resource, or accepted a watch. The zero time is never. A watch without changes may be silent
// until it ends: see StaleAfter.
func (s *Informer[T]) LastContact() time.Time {
	if at := s.contact.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// addPage stores the objects of a page that pass the filter, and adds their keys to listed.
func (s *Informer[T]) addPage(page runtime.Object, listed map[string]bool) error {
	return meta.EachListItem(page, func(o runtime.Object) error {
		item, ok := o.(T)
		if ok {
			s.lastChange.observe(item)
			s.listed++
		}
		if ok && s.filter(item) {
			listed[keyOf(item)] = true
			s.store(item)
		}
		return nil
	})
}

// removeUnlisted removes what a complete list did not have: it was deleted while no watch was under
// way.
func (s *Informer[T]) removeUnlisted(listed map[string]bool) {
	for _, item := range s.List() {
		if !listed[keyOf(item)] {
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

// withoutManagedFields returns a copy without managedFields, which nothing here reads.
func withoutManagedFields[T Object](item T) T {
	copied, _ := item.DeepCopyObject().(T)
	copied.SetManagedFields(nil)
	return copied
}

func keyOf(o metav1.Object) string {
	if namespace := o.GetNamespace(); namespace != "" {
		return namespace + "/" + o.GetName()
	}
	return o.GetName()
}

// Union is several informers of one resource that have no object in common, read as one.
type Union[T Object] []*Informer[T]

// Get returns the object with the key "name" or "namespace/name" from the informer that has it.
func (u Union[T]) Get(key string) (found T, known bool) {
	for _, one := range u {
		if found, known = one.Get(key); known {
			return found, true
		}
	}
	return found, false
}

// List returns the objects of all, in no order.
func (u Union[T]) List() []T {
	var all []T
	for _, one := range u {
		all = append(all, one.List()...)
	}
	return all
}
