package podclaims

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

// API lists pods.
type API interface {
	// FewPods visits the pods of a namespace that a field selector leaves, of very many only some.
	FewPods(ctx context.Context, namespace, fields string, visit func(*corev1.Pod)) error
}

// Pod is a pod that uses claims.
type Pod struct {
	Namespace, Name string
	Claims          []string // plan.PodClaims
}

// Of a pod that is being scheduled the API server knows no node yet: the scheduler gives it one
// when its claims are bound.
const unscheduled = "spec.nodeName=,status.phase=Pending"

const (
	between = 100 * time.Millisecond // two lists
	again   = time.Minute            // after the API server forbade one
	kept    = 10 * time.Second       // how long a list is used

	mostPods  = 4    // that are known of one claim
	mostNames = 4096 // of claims that are held of a list: up to 1 MiB
	mostLooks = 32
)

// Finder finds the pods that use a claim and wait for the scheduler.
type Finder struct {
	api    API
	spaces workqueue.TypedInterface[string]

	mu     sync.Mutex
	looks  map[string]look // the last one, by namespace
	denied time.Time       // when the API server forbade one last
}

// look is one list of a namespace's pods.
type look struct {
	began time.Time
	ended time.Time
	pods  map[string][]Pod // by claim
	err   error
}

// NewFinder returns a Finder that asks for nothing before Run.
func NewFinder(api API) *Finder {
	return &Finder{api: api, spaces: workqueue.NewTyped[string](), looks: map[string]look{}}
}

// Run lists what Using asks for, until ctx ends.
func (f *Finder) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, f.spaces.ShutDown)
	defer stop()
	for {
		namespace, down := f.spaces.Get()
		if down {
			return
		}
		f.look(ctx, namespace)
		f.spaces.Done(namespace)
		wake.Wait(ctx, between, nil)
	}
}

// Using returns the pods that use a claim, as they were after a moment, and 10 seconds ago at most:
// another pod may use the claims of one that is gone. known is false as long as they have to be
// listed for that: ask again. Where pods may not be listed there are none.
func (f *Finder) Using(namespace, claim string, after time.Time) (pods []Pod, known bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.denied) < again {
		return nil, true, nil
	}
	if last, is := f.looks[namespace]; is && last.began.After(after) &&
		time.Since(last.ended) <= kept {
		if last.err != nil {
			delete(f.looks, namespace) // the next one asks again
		}
		return last.pods[claim], true, last.err
	}
	f.spaces.Add(namespace)
	return nil, false, nil
}

// Listed returns the pods of a namespace that the last list had.
func (f *Finder) Listed(namespace string) (pods []Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := map[string]bool{}
	for _, claim := range slices.Sorted(maps.Keys(f.looks[namespace].pods)) {
		for _, pod := range f.looks[namespace].pods[claim] {
			if !names[pod.Name] {
				names[pod.Name], pods = true, append(pods, pod)
			}
		}
	}
	return pods
}

// Forget forgets what was listed.
func (f *Finder) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.looks)
}

// Look lists what Using asked for, where Run does not run, and reports whether that was anything.
func (f *Finder) Look(ctx context.Context) (looked bool) {
	for ; f.spaces.Len() > 0; looked = true {
		namespace, _ := f.spaces.Get()
		f.look(ctx, namespace)
		f.spaces.Done(namespace)
	}
	return looked
}

func (f *Finder) look(ctx context.Context, namespace string) {
	l, names := look{began: time.Now(), pods: map[string][]Pod{}}, 0
	l.err = f.api.FewPods(ctx, namespace, unscheduled, func(p *corev1.Pod) {
		if p.DeletionTimestamp != nil || len(p.Spec.SchedulingGates) > 0 || names > mostNames {
			return
		}
		pod := Pod{p.Namespace, p.Name, plan.PodClaims(p)}
		names += len(pod.Claims)
		for _, claim := range pod.Claims {
			if len(l.pods[claim]) < mostPods {
				l.pods[claim] = append(l.pods[claim], pod)
			}
		}
	})
	l.ended = time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if apierrors.IsForbidden(l.err) {
		f.denied = time.Now()
	}
	for name, old := range f.looks {
		if time.Since(old.began) > kept || len(f.looks) >= mostLooks {
			delete(f.looks, name)
		}
	}
	f.looks[namespace] = l
}
