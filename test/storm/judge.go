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
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// judge watches the volumes and claims of the cluster, and looks at each volume the moment it
// appears.
type judge struct {
	scene *scene
	churn *churn

	claims, volumes cache.Store

	mu          sync.Mutex
	seen        int      // volumes that appeared
	undecidable int      // of them: the claim was deleted already, so that the directory may be gone
	gone        int      // volumes that went
	wrong       []string // what was wrong with them
}

// newJudge begins to watch, and returns when it sees everything.
func newJudge(ctx context.Context, client kubernetes.Interface, namespace string, s *scene, c *churn) (*judge, error) {
	j := &judge{scene: s, churn: c}
	core := client.CoreV1()
	var volumes, claims cache.Controller
	j.volumes, volumes = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core.PersistentVolumes().List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return core.PersistentVolumes().Watch(ctx, o)
			},
		},
		ObjectType: &corev1.PersistentVolume{},
		Handler:    cache.ResourceEventHandlerFuncs{AddFunc: j.appeared, DeleteFunc: j.went},
	})
	j.claims, claims = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core.PersistentVolumeClaims(namespace).List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return core.PersistentVolumeClaims(namespace).Watch(ctx, o)
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
	c.existing = func() int { return len(j.claims.ListKeys()) }
	return j, nil
}

// appeared: whoever answers a claim with a volume says that its directory is there, on the pool's own
// filesystem, whatever is mounted at the moment.
func (j *judge) appeared(object any) {
	pv := object.(*corev1.PersistentVolume)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seen++
	if pv.Spec.HostPath == nil || pv.Spec.ClaimRef == nil || filepath.Dir(pv.Spec.HostPath.Path) != j.scene.mount {
		j.wrong = append(j.wrong, fmt.Sprintf("%s points to %v", pv.Name, pv.Spec.PersistentVolumeSource))
		return
	}
	directory := filepath.Base(pv.Spec.HostPath.Path)
	_, err := os.Lstat(j.scene.truth.path(directory))
	switch {
	case err == nil:
		if j.seen%3 == 0 { // as its pod would; whoever deleted it meanwhile was quicker
			_ = os.WriteFile(j.scene.truth.path(directory, "data"), []byte(pv.Name), 0o600)
		}
	case !errors.Is(err, fs.ErrNotExist):
		j.wrong = append(j.wrong, fmt.Sprintf("%s: %v", pv.Name, err))
	case j.churn.isDoomed(string(pv.Spec.ClaimRef.UID)): // asked after the look at the disk
		j.undecidable++
	default:
		j.wrong = append(j.wrong, fmt.Sprintf("%s was published, and its directory is not on the pool's filesystem", pv.Name))
	}
}

func (j *judge) went(object any) {
	if last, unknown := object.(cache.DeletedFinalStateUnknown); unknown {
		object = last.Obj
	}
	j.mu.Lock()
	j.gone++
	j.mu.Unlock()
	if pv, is := object.(*corev1.PersistentVolume); is && pv.Spec.ClaimRef != nil {
		j.churn.forget(string(pv.Spec.ClaimRef.UID))
	}
}

// awaitAnother waits until one volume more is made.
func (j *judge) awaitAnother(ctx context.Context, patience time.Duration) error {
	before := j.volumesSeen()
	for end := time.Now().Add(patience); j.volumesSeen() == before && ctx.Err() == nil; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("no volume is made in %s in which the pool is mounted", patience)
		}
	}
	return nil
}

func (j *judge) volumesSeen() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seen
}

// count is the volumes that appeared, those of them that could not be judged, and those that went.
func (j *judge) count() (seen, undecidable, gone int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seen, j.undecidable, j.gone
}

// verdicts are what was wrong with volumes.
func (j *judge) verdicts() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.wrong)
}

// unsettled is what keeps the world from being as it should: each claim that exists is bound to its
// volume, which has one directory and one record, and nothing else is anywhere.
func (j *judge) unsettled() (losses losses) {
	survivors := j.churn.survivors()
	want := map[string]bool{} // volume names
	for _, uid := range survivors {
		want["pvc-"+uid] = true
	}
	for _, o := range j.claims.List() {
		c := o.(*corev1.PersistentVolumeClaim)
		switch {
		case survivors[c.Name] != string(c.UID):
			losses.add(claimsUnsettled, "claim %s is deleted and does not go", c.Name)
		case c.Status.Phase != corev1.ClaimBound || c.Spec.VolumeName != "pvc-"+string(c.UID):
			losses.add(claimsUnsettled, "claim %s is %s", c.Name, c.Status.Phase)
		}
		delete(survivors, c.Name)
	}
	for name := range survivors {
		losses.add(claimsUnsettled, "claim %s is gone", name)
	}
	missing := map[string]bool{}
	for name := range want {
		missing[name] = true
	}
	for _, o := range j.volumes.List() {
		pv := o.(*corev1.PersistentVolume)
		if !want[pv.Name] {
			losses.add(volumesLeft, "volume %s is %s", pv.Name, pv.Status.Phase)
		}
		delete(missing, pv.Name)
	}
	for name := range missing {
		losses.add(claimsUnsettled, "volume %s does not exist", name)
	}
	j.compare(want, &losses)
	return losses
}

// compare is the disk's part of unsettled.
func (j *judge) compare(want map[string]bool, losses *losses) {
	tree, err := j.scene.truth.tree()
	if err != nil {
		losses.add(entriesLeaked, "listing %s: %v", j.scene.truth.name, err)
	}
	expected := map[string]bool{}
	for pv := range want {
		expected[pv], expected["ours/volumes/"+pv+".json"] = true, true
	}
	for _, name := range tree {
		if !expected[name] {
			losses.add(entriesLeaked, "%s", name)
		}
		delete(expected, name)
	}
	for name := range expected {
		losses.add(entriesMissing, "%s", name)
	}
}

// settle waits until nothing is unsettled, and answers what is when nothing was settled for so long.
func (j *judge) settle(ctx context.Context, patience time.Duration) (losses, time.Duration) {
	begin := time.Now()
	least, since := math.MaxInt, begin
	for {
		l := j.unsettled()
		if n := l.sum(); n < least {
			least, since = n, time.Now()
		}
		if least == 0 || time.Since(since) > patience || ctx.Err() != nil {
			return l, time.Since(begin)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// kinds of losses.
const (
	wrongPlace      = "entries made in a wrong place"
	wrongVolume     = "claims answered with a wrong directory"
	claimsUnsettled = "claims not settled"
	volumesLeft     = "volume objects that nobody wants"
	entriesLeaked   = "directories, records, staging or trash left"
	entriesMissing  = "directories or records missing"
	filesLost       = "files of volumes lost"
	daemonEnded     = "daemons that ended"
	nothingProven   = "storms too mild to prove anything"
	gateLate        = "gates that closed too late"
)

var kinds = []string{gateLate, wrongPlace, wrongVolume, claimsUnsettled, volumesLeft, entriesLeaked, entriesMissing, filesLost, daemonEnded, nothingProven}

// losses are what was lost, by kind.
type losses map[string][]string

func (l *losses) add(kind, format string, args ...any) {
	if *l == nil {
		*l = losses{}
	}
	(*l)[kind] = append((*l)[kind], fmt.Sprintf(format, args...))
}

func (l *losses) merge(other losses) {
	for kind, all := range other {
		for _, one := range all {
			l.add(kind, "%s", one)
		}
	}
}

func (l losses) sum() (n int) {
	for _, all := range l {
		n += len(all)
	}
	return n
}

// some shows the first few of a kind.
func (l losses) some(kind string) string {
	all := slices.Sorted(slices.Values(l[kind]))
	if len(all) > 5 {
		all = append(all[:5], fmt.Sprintf("and %d more", len(all)-5))
	}
	return strings.Join(all, "\n    ")
}
