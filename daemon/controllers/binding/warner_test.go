package binding

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// Pods of a real API server are warned in test/e2e. Here is what it cannot time, and what many pods
// cost.

// cluster has pods and claims, and keeps what it was asked and what was reported.
type cluster struct {
	mu     sync.Mutex // of the pods
	pods   []*corev1.Pod
	claims map[string]*corev1.PersistentVolumeClaim
	err    error
	lists  []string // namespaces whose pods were listed
	reads  int      // of claims
	events []string
	log    strings.Builder
	denied bool // no namespace may have another warning
}

func (c *cluster) EachPod(_ context.Context, namespace, _ string, visit func(*corev1.Pod)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists = append(c.lists, namespace)
	for _, pod := range c.pods {
		visit(pod)
	}
	return c.err
}

func (c *cluster) GetClaim(_ context.Context, _, name string) (*corev1.PersistentVolumeClaim, error) {
	c.reads++
	return c.claims[name], nil
}

func (c *cluster) Event(ref corev1.ObjectReference, _, reason, _ string) {
	c.events = append(c.events, reason+" "+ref.Namespace+"/"+ref.Name)
}

// warner warns of this cluster's pods. Its one class waits for the pod, and its volumes are those
// of all claims.
func (c *cluster) warner() *Warner {
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	return New(Options{
		API: c, Events: c, Log: slog.New(slog.NewTextHandler(&c.log, nil)), Nodes: func(context.Context) int { return 3 },
		Classes: func() []*storagev1.StorageClass {
			return []*storagev1.StorageClass{{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, VolumeBindingMode: &wait}}
		},
		Volumes: func() (all []*corev1.PersistentVolume) {
			for _, claim := range c.claims {
				v := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name}}}
				v.Status.Phase = corev1.VolumeBound
				all = append(all, v)
			}
			return all
		},
		Allow: func(string) bool { return !c.denied },
	})
}

// claim is one of class fast, that names this node, or none.
func claim(name, node string) *corev1.PersistentVolumeClaim {
	class := "fast"
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class}}
	if node != "" {
		c.Annotations = map[string]string{plan.ProvisionOnNode: node}
	}
	return c
}

// pod is one that uses these claims.
func pod(name string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	for _, claim := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
	return p
}

// mixed is a cluster whose pod "web" uses a claim that names its node beside one that waits for the
// pod.
func mixed() *cluster {
	return &cluster{
		pods:   []*corev1.Pod{pod("web", "named", "waits"), pod("alone", "named"), pod("fine", "waits", "waits-too")},
		claims: map[string]*corev1.PersistentVolumeClaim{"named": claim("named", "node-a"), "waits": claim("waits", ""), "waits-too": claim("waits-too", "")},
	}
}

// A burst of claims costs one list of pods in each namespace.
func TestBurstCostsOneList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mixed()
		w := c.warner()
		stop := running(t, w)
		for range 2 {
			for _, claim := range c.claims {
				w.Provisioned(claim) // the first may be one that does not name a node: then it is not looked for
			}
			w.Provisioned(c.claims["named"])
			w.Provisioned(c.claims["waits"])
			time.Sleep(2 * gather) // of the bubble's clock
		}
		stop()
		if want := []string{"ns", "ns"}; fmt.Sprint(c.lists) != fmt.Sprint(want) {
			t.Errorf("listed the pods of %q, want %q", c.lists, want)
		}
		if want := []string{"MixedBinding ns/web"}; fmt.Sprint(c.events) != fmt.Sprint(want) {
			t.Errorf("events %q, want %q: once for both looks", c.events, want)
		}
	})
}

// running runs a warner until stop, which returns when it has ended.
func running(t *testing.T, w *Warner) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { w.Run(ctx); close(ended) }()
	return func() {
		cancel()
		<-ended
	}
}

// A pod that comes after its volumes is found, and its claims are not compared again and again.
func TestPodThatComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mixed()
		late := c.pods
		c.pods = nil
		w := c.warner()
		stop := running(t, w)
		w.Provisioned(c.claims["named"])
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(c.events) > 0 {
			t.Errorf("events %q, without a pod", c.events)
		}
		c.mu.Lock()
		c.pods = late
		c.mu.Unlock()
		time.Sleep(10 * time.Minute)
		stop()
		if len(c.events) != 1 || c.reads != 4 { // of the two pods with two claims
			t.Errorf("events %q, and %d claims were read, want one and 4", c.events, c.reads)
		}
	})
}

// Where no pod can have such claims none is looked for.
func TestNothingToLookFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mixed()
		delete(c.claims, "named")
		w := c.warner()
		stop := running(t, w)
		w.Provisioned(c.claims["waits"])
		time.Sleep(time.Hour)
		stop()
		if len(c.lists) != 0 {
			t.Errorf("pods were listed %d times", len(c.lists))
		}
	})
}

// A daemon that may not list pods says so once, and goes on.
func TestWithoutTheRightToListPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mixed()
		c.pods, c.err = nil, errors.New("list pods: forbidden")
		w := c.warner()
		stop := running(t, w)
		w.Provisioned(c.claims["named"])
		time.Sleep(10 * time.Minute)
		stop()
		if lines := strings.Count(c.log.String(), "forbidden"); lines != 1 || len(c.lists) < 10 {
			t.Errorf("%d lines about %d requests, want one:\n%s", lines, len(c.lists), c.log.String())
		}
	})
}

// A namespace about whose objects enough was reported gets no more warnings.
func TestLimitedNamespace(t *testing.T) {
	c := mixed()
	c.denied = true
	w := c.warner()
	w.add("ns", "named")
	w.lookIn(t.Context(), "ns")
	if len(c.events) > 0 || c.reads == 0 {
		t.Errorf("events %q after %d claims were read", c.events, c.reads)
	}
}

// manyPods makes pods one after the other, as pages bring them, and measures how much of them is
// held after the last.
type manyPods struct {
	cluster
	n, claims int
	held      uint64
}

func (p *manyPods) EachPod(_ context.Context, _, _ string, visit func(*corev1.Pod)) error {
	before := heap()
	for i := range p.n {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i), Annotations: map[string]string{"x": strings.Repeat("x", 1<<20)}}}
		for claim := range p.claims {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprint("claim-", claim)}}})
		}
		visit(pod)
	}
	p.held = max(heap(), before) - before
	return nil
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A tenant that has one claim provisioned has many large pods that use it, each with many claims.
// Little is held of them, and little is asked.
func TestManyLargePods(t *testing.T) {
	c := &manyPods{n: 2 * mostPods, claims: 10 * mostClaims}
	w := c.warner()
	w.API = c
	w.add("default", "claim-0")
	w.lookIn(t.Context(), "default")
	if c.held > 4<<20 {
		t.Errorf("%d KiB are held of %d pods", c.held>>10, c.n)
	}
	if c.reads == 0 || c.reads > mostPods*mostClaims {
		t.Errorf("%d claims were asked for", c.reads)
	}
}
