package kube

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

type mode int

const (
	swallow mode = iota // no event arrives, nor the end of the watch
	fade                // the same, after a bookmark
	repeat              // each event arrives twice, and all earlier ones again after it
	future              // the first list claims a version that the server has yet to reach
	relapse             // the same with the first event, after which the watch ends
	brief               // the first watch ends after the first event
	longer              // the same after a deletion
)

// faultySource is the real server with a fault.
type faultySource struct {
	*source
	mode    mode
	lists   atomic.Int32
	watches atomic.Int32
	before  func()       // is called before the second watch, if it is not nil
	from    sync.Map     // watch number: the version at which it began
	last    atomic.Value // string: the version of the last event
}

func (d *faultySource) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	page, err := d.source.List(ctx, o)
	if d.lists.Add(1) == 1 && d.mode == future && err == nil {
		if list, ok := page.(*corev1.PersistentVolumeClaimList); ok {
			list.ResourceVersion = "999999999"
		}
	}
	return page, err
}

func (d *faultySource) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if d.watches.Load() == 1 && d.before != nil {
		d.before()
	}
	d.from.Store(d.watches.Add(1), o.ResourceVersion)
	real, err := d.source.Watch(ctx, o)
	if err != nil || d.mode == future || (d.mode == relapse || d.mode == brief || d.mode == longer) && d.watches.Load() > 1 {
		return real, err
	}
	faulty := &faultyWatch{real: real, events: make(chan watch.Event), stopped: make(chan struct{})}
	go faulty.run(d)
	return faulty, nil
}

type faultyWatch struct {
	real    watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	once    sync.Once
}

func (s *faultyWatch) ResultChan() <-chan watch.Event { return s.events }

func (s *faultyWatch) Stop() {
	s.once.Do(func() { close(s.stopped); s.real.Stop() })
}

func (s *faultyWatch) run(d *faultySource) {
	m := d.mode
	var past []watch.Event
	if m == fade {
		s.events <- watch.Event{Type: watch.Bookmark, Object: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}}}
	}
	for event := range s.real.ResultChan() {
		if m == swallow || m == fade {
			continue
		}
		if m == relapse || m == brief {
			if claim, ok := event.Object.(*corev1.PersistentVolumeClaim); ok && m == relapse {
				claim.ResourceVersion = "999999999"
			}
			s.events <- event
			close(s.events)
			return
		}
		if m == longer {
			if claim, ok := event.Object.(*corev1.PersistentVolumeClaim); ok {
				d.last.Store(claim.ResourceVersion)
			}
			s.events <- event
			if event.Type == watch.Deleted {
				close(s.events)
				return
			}
			continue
		}
		past = append(past, event)
		for _, e := range append([]watch.Event{event, event}, slices.Clone(past)...) {
			copied := watch.Event{Type: e.Type, Object: e.Object.DeepCopyObject()}
			select {
			case s.events <- copied:
			case <-s.stopped:
				return
			}
		}
	}
}

// healthLog is what OnHealth was told; "well" is the end of all.
type healthLog struct {
	mu   sync.Mutex
	told []string
}

func (t *healthLog) add(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.told = append(t.told, "well")
		return
	}
	t.told = append(t.told, err.Error())
}

func (t *healthLog) read() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.told)
}
