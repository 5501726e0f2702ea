package kube

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// plane is the real control plane that all tests of this package share; scratch is a directory that
// lasts as long as the process.
var (
	plane   *cluster.Cluster
	scratch string
)

// markKey is an annotation that claims are told apart by, one of those that are kept of them.
const markKey = plan.ProvisionOnNode

func TestMain(m *testing.M) { os.Exit(run(m)) }

// atOnce is how many parallel tests run at the same time: they wait most of their time, for a
// control plane of their own that starts, for example.
const atOnce = "8"

func run(m *testing.M) (code int) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	err := error(nil)
	if !chosen {
		err = flag.Set("test.parallel", atOnce)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if scratch, err = os.MkdirTemp("", "kube-test-"); err == nil {
		defer os.RemoveAll(scratch)
		plane, err = cluster.Start(context.Background(), cluster.Options{})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code = m.Run()
	if err := plane.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

// newClient is one for the shared control plane whose requests are all written down.
func newClient(t *testing.T, o Options) (*Client, *wire) {
	t.Helper()
	if o.Kubeconfig == "" {
		o.Kubeconfig = plane.Kubeconfig()
	}
	if o.Node == "" {
		o.Node = "node-a"
	}
	w := &wire{}
	o.wrap = func(next http.RoundTripper) http.RoundTripper { w.next.Store(&next); return w }
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c, w
}

// wire records each request, and may respond in place of the server or change the request.
type wire struct {
	next atomic.Pointer[http.RoundTripper] // that of the kubeconfig used last
	mu   sync.Mutex
	log  []string
	// respond may be nil. It returns nil, nil for a request that is to go through.
	respond func(*http.Request) (*http.Response, error)
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	what := r.Method + " " + r.URL.Path
	for _, key := range []string{"watch", "limit", "continue"} {
		if r.URL.Query().Has(key) {
			what += " " + key
		}
	}
	w.mu.Lock()
	w.log = append(w.log, what)
	respond := w.respond
	w.mu.Unlock()
	if respond != nil {
		if response, err := respond(r); response != nil || err != nil {
			return response, err
		}
	}
	return (*w.next.Load()).RoundTrip(r)
}

func (w *wire) intercept(f func(*http.Request) (*http.Response, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.respond = f
}

// interceptWatches is intercept for watches alone.
func (w *wire) interceptWatches(f func(*http.Request) (*http.Response, error)) {
	w.intercept(func(r *http.Request) (*http.Response, error) {
		if !isWatch(r) {
			return nil, nil
		}
		return f(r)
	})
}

// count is how many requests since the last forget contain the words.
func (w *wire) count(words string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, line := range w.log {
		if strings.Contains(line, words) {
			n++
		}
	}
	return n
}

func (w *wire) requests() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.log)
}

func (w *wire) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = nil
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

// eventually waits for a condition that no single watch shows.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	eventuallyWithin(t, 40*time.Second, what, condition)
}

func eventuallyWithin(t *testing.T, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	for began := time.Now(); !condition(); time.Sleep(rig.Pause(began)) {
		if time.Since(began) > limit {
			t.Fatalf("%s: not within %s", what, limit)
		}
	}
}

func namespace(t *testing.T) string {
	t.Helper()
	name, err := plane.NewNamespace(t.Context(), "kube")
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// newClaim creates a claim of a class without a provisioner. mark is an annotation, which tests
// compare.
func newClaim(t *testing.T, in *cluster.Cluster, namespace, name, mark string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := cluster.Claim(namespace, name, "nobodys", "1Gi")
	claim.Annotations = map[string]string{markKey: mark}
	made, err := in.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func setMark(t *testing.T, namespace, name, mark string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, markKey, mark)
	_, err := plane.Client().CoreV1().PersistentVolumeClaims(namespace).Patch(t.Context(), name, "application/merge-patch+json", patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func deleteClaim(t *testing.T, in *cluster.Cluster, namespace, name string) {
	t.Helper()
	claims := in.Client().CoreV1().PersistentVolumeClaims(namespace)
	if err := claims.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := cluster.WaitGone[*corev1.PersistentVolumeClaim](t.Context(), claims, name); err != nil {
		t.Fatal(err)
	}
}

func volume(name, claim string, finalizers ...string) *corev1.PersistentVolume {
	directory := corev1.HostPathDirectory
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "example.test/nobody"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			StorageClassName:              "nobodys",
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "nowhere", Name: claim, UID: types.UID("uid-" + claim)},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/fast/" + name, Type: &directory}},
		},
	}
}

// changeLog records the calls of onChange, one line each: "+name mark", "~name mark", "-name mark".
// Changes of what is not the mark (kube-controller-manager works on the claims, too) are left out.
type changeLog struct {
	mu      sync.Mutex
	lines   []string
	serial  sync.Mutex // held while onChange runs
	overlap bool
}

func (d *changeLog) told(old, new *corev1.PersistentVolumeClaim) {
	if !d.serial.TryLock() {
		d.overlap = true
		return
	}
	defer d.serial.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case old == nil:
		d.lines = append(d.lines, "+"+new.Name+" "+new.Annotations[markKey])
	case new == nil:
		d.lines = append(d.lines, "-"+old.Name+" "+old.Annotations[markKey])
	case old.Annotations[markKey] != new.Annotations[markKey]:
		d.lines = append(d.lines, "~"+new.Name+" "+new.Annotations[markKey])
	}
}

func (d *changeLog) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

// expect waits until the changeLog has that many lines, and compares them all.
func (d *changeLog) expect(t *testing.T, want ...string) {
	t.Helper()
	deadline := time.Now().Add(40 * time.Second)
	for len(d.read()) < len(want) && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	if got := d.read(); !slices.Equal(got, want) {
		t.Fatalf("onChange was told:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
	if d.overlap {
		t.Error("onChange was called while it ran")
	}
}

// running runs an informer until the test ends, and waits until it is synced.
func running[T Object](t *testing.T, s *Informer[T]) *Informer[T] {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Error("Run did not return when its context ended")
		}
	})
	select {
	case <-s.Synced():
	case <-time.After(30 * time.Second):
		t.Fatal("not synced within 30 s")
	}
	return s
}

func names(s *Informer[*corev1.PersistentVolumeClaim]) string {
	var all []string
	for _, c := range s.List() {
		all = append(all, c.Name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// unlessChanged repeats a call that another client came before, as its callers do:
// kube-controller-manager adds a finalizer of its own (pv-protection) to each new object.
func unlessChanged(call func() error) error {
	for {
		if err := call(); !apierrors.IsConflict(err) {
			return err
		}
	}
}
