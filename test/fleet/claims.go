package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// batch is claims that are made at once.
type batch struct {
	mode   storagev1.VolumeBindingMode
	prefix string // of their names
	n      int
	change func(int, *corev1.PersistentVolumeClaim)
}

// provision creates a batch of claims, eight at a time, and waits until they are bound. It returns
// how many volumes each node has, and how long each claim took. There is one watch for all of them:
// the API server is busy with those of the daemons.
func (f *fleet) provision(ctx context.Context, b batch) (nodes map[string]int, took []time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	claims := f.Client.CoreV1().PersistentVolumeClaims(f.Namespace)
	none, err := claims.List(ctx, metav1.ListOptions{Limit: 1})
	f.Must(err, "listing claims")
	events, err := watchtools.NewRetryWatcherWithContext(ctx, none.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return claims.Watch(ctx, o) },
	})
	f.Must(err, "watching claims")
	defer events.Stop()
	var created sync.Map
	go f.create(ctx, b, &created)
	bound := map[string]bool{}
	for event := range events.ResultChan() {
		claim, is := event.Object.(*corev1.PersistentVolumeClaim)
		if !is || !strings.HasPrefix(claim.Name, b.prefix+"-") || claim.Status.Phase != corev1.ClaimBound || bound[claim.Name] {
			continue
		}
		bound[claim.Name] = true
		if began, known := created.Load(claim.Name); known {
			took = append(took, time.Since(began.(time.Time)))
		}
		if len(bound) == b.n {
			break
		}
	}
	if len(bound) < b.n {
		f.Fault("claims without a volume", "%d of %d %s claims", b.n-len(bound), b.n, b.prefix)
	}
	return f.nodesOf(b), took
}

func (f *fleet) create(ctx context.Context, b batch, created *sync.Map) {
	slots := make(chan struct{}, 8)
	for i := range b.n {
		slots <- struct{}{}
		claim := cluster.Claim(f.Namespace, fmt.Sprintf("%s-%d", b.prefix, i), className(b.mode), "1Mi")
		b.change(i, claim)
		created.Store(claim.Name, time.Now())
		go func() {
			defer func() { <-slots }()
			_, err := f.Client.CoreV1().PersistentVolumeClaims(f.Namespace).Create(ctx, claim, metav1.CreateOptions{})
			f.Blame("claims that could not be made", err)
		}()
	}
}

// nodesOf returns how many volumes of a batch each node has.
func (f *fleet) nodesOf(b batch) map[string]int {
	nodes := map[string]int{}
	volumes, err := f.Client.CoreV1().PersistentVolumes().List(context.Background(), metav1.ListOptions{})
	f.Must(err, "listing volumes")
	for _, v := range volumes.Items {
		if ref := v.Spec.ClaimRef; ref != nil && strings.HasPrefix(ref.Name, b.prefix+"-") {
			nodes[v.Labels[nodeLabel]]++
		}
	}
	return nodes
}

// unchanged does not change a claim.
func unchanged(int, *corev1.PersistentVolumeClaim) {}
