package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// checker watches the volumes and claims of the cluster, and looks at each volume the moment it
// appears.
type checker struct {
	*environment
	load *harness.Load

	claims, volumes cache.Store

	mu          sync.Mutex
	seen        int      // volumes that appeared
	undecidable int      // of them: the claim was deleted already, so that the directory may be gone
	gone        int      // volumes that went
	wrong       []string // what was wrong with them
}

// newChecker begins to watch, and returns when it sees everything.
func newChecker(ctx context.Context, e *environment, load *harness.Load) (*checker, error) {
	c := &checker{environment: e, load: load}
	core := e.Client.CoreV1()
	var volumes, claims cache.Controller
	c.volumes, volumes = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core.PersistentVolumes().List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return core.PersistentVolumes().Watch(ctx, o)
			},
		},
		ObjectType: &corev1.PersistentVolume{},
		Handler:    cache.ResourceEventHandlerFuncs{AddFunc: c.appeared, DeleteFunc: c.went},
	})
	c.claims, claims = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core.PersistentVolumeClaims(e.Namespace).List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return core.PersistentVolumeClaims(e.Namespace).Watch(ctx, o)
			},
		},
		ObjectType: &corev1.PersistentVolumeClaim{},
		Handler:    cache.ResourceEventHandlerFuncs{},
	})
	go volumes.RunWithContext(ctx)
	go claims.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), volumes.HasSynced, claims.HasSynced) {
		return nil, errors.New("the claims and volumes cannot be watched")
	}
	return c, nil
}

// appeared is called for each volume: its directory has to be on the pool's own filesystem,
// whatever is mounted at the moment.
func (c *checker) appeared(object any) {
	pv := object.(*corev1.PersistentVolume)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen++
	if pv.Spec.ClaimRef == nil || filepath.Dir(cluster.PathOf(pv)) != c.fixture.mount {
		c.wrong = append(c.wrong, fmt.Sprintf("%s points to %v", pv.Name, pv.Spec.PersistentVolumeSource))
		return
	}
	directory := filepath.Base(cluster.PathOf(pv))
	_, err := os.Lstat(c.fixture.own.path(directory))
	switch {
	case err == nil:
		if c.seen%3 == 0 { // as its pod would; it may be deleted meanwhile
			_ = os.WriteFile(c.fixture.own.path(directory, "data"), []byte(pv.Name), 0o600)
		}
	case !errors.Is(err, fs.ErrNotExist):
		c.wrong = append(c.wrong, fmt.Sprintf("%s: %v", pv.Name, err))
	case c.load.Doomed(string(pv.Spec.ClaimRef.UID)): // asked after the look at the disk
		c.undecidable++
	default:
		c.wrong = append(c.wrong, fmt.Sprintf("%s was published, and its directory is not on the pool's filesystem", pv.Name))
	}
}

func (c *checker) went(any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone++
}

// awaitAnother waits until one volume more is made.
func (c *checker) awaitAnother(ctx context.Context, timeout time.Duration) error {
	before := c.volumesSeen()
	for end := time.Now().Add(timeout); c.volumesSeen() == before && ctx.Err() == nil; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("no volume is made in %s in which the pool is mounted", timeout)
		}
	}
	return nil
}

func (c *checker) volumesSeen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

// count is the volumes that appeared, those of them that could not be judged, and those that went.
func (c *checker) count() (seen, undecidable, gone int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen, c.undecidable, c.gone
}

// wrongVolumes are what was wrong with volumes.
func (c *checker) wrongVolumes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.wrong)
}

// claimCount is the number of claims, those that are being deleted too.
func (c *checker) claimCount() int { return len(c.claims.ListKeys()) }

// unsettled is what keeps API and disk from being as they should: each claim that exists is bound
// to its volume, which has one directory and one record, and nothing else is anywhere.
func (c *checker) unsettled() *harness.Findings {
	f := &harness.Findings{}
	want := f.CompareObjects(all[*corev1.PersistentVolumeClaim](c.claims), all[*corev1.PersistentVolume](c.volumes), c.load.Live())
	tree, err := c.fixture.own.tree()
	if !f.Blame(harness.EntriesLeft, err) {
		f.CompareDisk(tree, want, harness.Exceptions{})
	}
	return f
}

func all[T any](store cache.Store) (objects []T) {
	for _, o := range store.List() {
		objects = append(objects, o.(T))
	}
	return objects
}

// settle waits until nothing is unsettled, and returns what is when nothing was settled for so
// long.
func (c *checker) settle(ctx context.Context, timeout time.Duration) (*harness.Findings, time.Duration) {
	begin := time.Now()
	least, since := math.MaxInt, begin
	for {
		found := c.unsettled()
		if n := found.Count(); n < least {
			least, since = n, time.Now()
		}
		if least == 0 || time.Since(since) > timeout || ctx.Err() != nil {
			return found, time.Since(begin)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Kinds of findings, besides the harness's.
const (
	wrongPlace  = "entries made in a wrong place"
	wrongVolume = "claims bound to a wrong directory"
	wrongMount  = "volumes of pods that were wrong, refused for no reason or left"
	gateLate    = "gates that closed too late"
)

var kinds = []string{gateLate, wrongPlace, wrongVolume, wrongMount, harness.Unsettled, harness.VolumesLeft, harness.EntriesLeft, harness.EntriesMissing,
	harness.FilesLost, harness.DaemonEnded, harness.NothingProven}
