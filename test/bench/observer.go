package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
)

// observer sees when claims are annotated and when their volumes come, with one clock for all.
type observer struct {
	mu     sync.Mutex
	seen   map[types.UID]*sighting
	second []types.UID   // claims that were given one more
	news   chan struct{} // closed and made anew at each sighting of a volume
}

// sighting is what was seen of one claim.
type sighting struct {
	annotated time.Time // both annotations are there; zero: not yet
	created   time.Time // its volume came; zero: not yet
	bound     time.Time // its phase is Bound; zero: not yet
	volume    *corev1.PersistentVolume
}

func newObserver() *observer {
	return &observer{seen: map[types.UID]*sighting{}, news: make(chan struct{})}
}

// watch begins to observe and returns; ended is called with the reason why it cannot go on.
func (o *observer) watch(ctx context.Context, client kubernetes.Interface, ended func(error)) error {
	claims, volumes := client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll), client.CoreV1().PersistentVolumes()
	have, err := claims.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	for what, source := range map[string]cache.WatcherWithContext{
		"claims":  &cache.ListWatch{WatchFuncWithContext: claims.Watch},
		"volumes": &cache.ListWatch{WatchFuncWithContext: volumes.Watch},
	} {
		watcher, err := watchtools.NewRetryWatcherWithContext(ctx, have.ResourceVersion, source)
		if err != nil {
			return err
		}
		go func() {
			for event := range watcher.ResultChan() {
				o.event(event, time.Now())
			}
			ended(fmt.Errorf("the observer's watch of %s ended", what))
		}()
	}
	return nil
}

func (o *observer) event(event watch.Event, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch object := event.Object.(type) {
	case *corev1.PersistentVolumeClaim:
		o.claim(object, now)
	case *corev1.PersistentVolume:
		if event.Type == watch.Added && object.Spec.ClaimRef != nil {
			o.volume(object, now)
		}
	}
}

func (o *observer) claim(claim *corev1.PersistentVolumeClaim, now time.Time) {
	s := o.of(claim.UID)
	a := claim.Annotations
	if s.annotated.IsZero() && a[plan.StorageProvisioner] != "" && a[plan.SelectedNode] != "" {
		s.annotated = now
		o.tell()
	}
	if s.bound.IsZero() && claim.Status.Phase == corev1.ClaimBound {
		s.bound = now
		o.tell()
	}
}

func (o *observer) volume(pv *corev1.PersistentVolume, now time.Time) {
	s := o.of(pv.Spec.ClaimRef.UID)
	if s.volume != nil {
		o.second = append(o.second, pv.Spec.ClaimRef.UID)
		return
	}
	s.created, s.volume = now, pv
	o.tell()
}

func (o *observer) of(uid types.UID) *sighting {
	if o.seen[uid] == nil {
		o.seen[uid] = &sighting{}
	}
	return o.seen[uid]
}

func (o *observer) tell() {
	close(o.news)
	o.news = make(chan struct{})
}

// wait waits until is holds for all of the claims, and returns what was seen of them, in their order.
func (o *observer) wait(ctx context.Context, claims []*corev1.PersistentVolumeClaim, is func(*sighting) bool) ([]sighting, error) {
	next := 0
	for {
		o.mu.Lock()
		for next < len(claims) && is(o.of(claims[next].UID)) {
			next++
		}
		news := o.news
		if next == len(claims) {
			all := make([]sighting, 0, len(claims))
			for _, c := range claims {
				all = append(all, *o.of(c.UID))
			}
			o.mu.Unlock()
			return all, nil
		}
		o.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d claims are done: %w", o.count(claims, is), len(claims), context.Cause(ctx))
		case <-news:
		}
	}
}

func (o *observer) count(claims []*corev1.PersistentVolumeClaim, is func(*sighting) bool) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range claims {
		if is(o.of(c.UID)) {
			n++
		}
	}
	return n
}

// doubles names those of the claims that have got two volumes.
func (o *observer) doubles(claims []*corev1.PersistentVolumeClaim) (names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range claims {
		if slices.Contains(o.second, c.UID) {
			names = append(names, c.Name)
		}
	}
	return names
}

// forget empties the memory between two runs.
func (o *observer) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.second, o.seen = nil, map[types.UID]*sighting{}
}

func hasVolume(s *sighting) bool { return !s.created.IsZero() && !s.annotated.IsZero() }
func isBound(s *sighting) bool   { return !s.bound.IsZero() }
