package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

const others = "example.test/others"

func TestCreateVolume(t *testing.T) {
	ctx := t.Context()
	c, w := newClient(t, Options{})
	existing, err := c.CreateVolume(ctx, volume("created", "1", plan.Finalizer))
	if err != nil || existing != nil {
		t.Fatalf("first: %v, %v", existing, err)
	}
	if got := w.requests(); len(got) != 1 {
		t.Errorf("requests: %q, want one", got)
	}
	second := volume("created", "1")
	second.Spec.HostPath.Path = "/elsewhere"
	existing, err = c.CreateVolume(ctx, second)
	if err != nil || existing == nil || existing.Spec.HostPath.Path != "/srv/fast/created" || existing.UID == "" {
		t.Fatalf("second: %v, %v; want the first one", existing, err)
	}
	bad := volume("created-badly", "1")
	bad.Spec.Capacity = nil
	_, err = c.CreateVolume(ctx, bad)
	if err == nil || !strings.HasPrefix(err.Error(), "create volume created-badly: ") {
		t.Errorf("without a capacity: %v", err)
	}
}

// listed is each volume of that prefix with its finalizers and whether it is being deleted.
func listed(t *testing.T, prefix string) []string {
	t.Helper()
	all, err := plane.Client().CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, pv := range all.Items {
		if strings.HasPrefix(pv.Name, prefix) {
			lines = append(lines, fmt.Sprintf("%s %v %v", pv.Name, finalizers(&pv), pv.DeletionTimestamp != nil))
		}
	}
	return lines
}

// created is a volume that kube-controller-manager does not write again: its phase is Released, and its policy Delete,
// because the controller takes the finalizer off one with Retain (modifyDeletionFinalizers in pv_controller.go).
func created(t *testing.T, pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	t.Helper()
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	if _, err := plane.Client().CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	settled, err := plane.WaitVolumePhase(t.Context(), pv.Name, corev1.VolumeReleased)
	if err != nil {
		t.Fatal(err)
	}
	return settled
}

func TestRemoveVolume(t *testing.T) {
	ctx := t.Context()
	c, w := newClient(t, Options{})
	plain := created(t, volume("rm-plain", "1", plan.Finalizer))
	shared := created(t, volume("rm-shared", "2", others, plan.Finalizer))
	moved := created(t, volume("rm-moved", "3", others, plan.Finalizer))
	replaced := created(t, volume("rm-replaced", "4", plan.Finalizer))
	deleted := created(t, volume("rm-deleted", "5", plan.Finalizer))
	created(t, volume("rm-untouched", "6", plan.Finalizer))

	// Another finalizer is removed meanwhile, so that ours has another index.
	patch := fmt.Appendf(nil, `{"metadata":{"finalizers":[%q]}}`, plan.Finalizer)
	if _, err := plane.Client().CoreV1().PersistentVolumes().Patch(ctx, "rm-moved", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	replaced.UID = "another" // what we know is not what is there
	if err := plane.Client().CoreV1().PersistentVolumes().Delete(ctx, "rm-deleted", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, pv := range []*corev1.PersistentVolume{plain, shared, moved, replaced, deleted} {
		w.forget()
		if err := unlessChanged(func() error { return c.RemoveVolume(ctx, pv) }); err != nil {
			t.Errorf("%s: %v", pv.Name, err)
		}
		if pv == plain && len(w.requests()) != 2 {
			t.Errorf("requests: %q, want two", w.requests())
		}
		if err := unlessChanged(func() error { return c.RemoveVolume(ctx, pv) }); err != nil {
			t.Errorf("%s, again: %v", pv.Name, err)
		}
	}
	want := []string{
		"rm-replaced [" + plan.Finalizer + "] false",
		"rm-shared [" + others + "] true",
		"rm-untouched [" + plan.Finalizer + "] false",
	}
	var got []string
	defer func() {
		if t.Failed() {
			t.Logf("the volumes are %q", got)
		}
	}()
	eventually(t, "the volumes are "+strings.Join(want, ", "), func() bool {
		got = listed(t, "rm-")
		return slices.Equal(got, want)
	})
}

// finalizers are those of an object without kube-controller-manager's.
func finalizers(pv *corev1.PersistentVolume) []string {
	return slices.DeleteFunc(slices.Clone(pv.Finalizers), func(f string) bool { return f == "kubernetes.io/pv-protection" })
}

func TestReleaseFinalizer(t *testing.T) {
	c, _ := newClient(t, Options{})
	both := created(t, volume("fin-both", "1", plan.Finalizer, others))
	for range 2 {
		if now, err := c.ReleaseFinalizer(t.Context(), both); err != nil || !slices.Equal(finalizers(now), []string{others}) {
			t.Fatalf("%v, %v", now, err)
		}
	}
	gone := both.DeepCopy()
	gone.Name = "fin-gone"
	if now, err := c.ReleaseFinalizer(t.Context(), gone); now != nil || err != nil {
		t.Errorf("one that is gone: %v, %v", now, err)
	}
	if got, want := listed(t, "fin-"), []string{"fin-both [" + others + "] false"}; !slices.Equal(got, want) {
		t.Errorf("volumes: %q, want %q", got, want)
	}
}

// An API server that was restored after an object was read has the claim again that was gone: what was decided to go is
// bound, and stays.
func TestReleaseFinalizerOfARestoredServer(t *testing.T) {
	ctx, ns := t.Context(), namespace(t)
	c, _ := newClient(t, Options{})
	claim := newClaim(t, plane, ns, "restored", "1")
	pv := volume("fin-restored", "1", plan.Finalizer)
	pv.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: ns, Name: claim.Name, UID: claim.UID}
	pv.Spec.StorageClassName, pv.Spec.AccessModes = *claim.Spec.StorageClassName, claim.Spec.AccessModes
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	if _, err := plane.Client().CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bound, err := plane.WaitVolumePhase(ctx, pv.Name, corev1.VolumeBound)
	if err != nil {
		t.Fatal(err)
	}
	released := bound.DeepCopy()
	released.Status.Phase = corev1.VolumeReleased
	if now, err := c.ReleaseFinalizer(ctx, released); !apierrors.IsConflict(err) {
		t.Errorf("got %v, %v, want a conflict", now, err)
	}
	if now, err := c.GetVolume(ctx, pv.Name); err != nil || !slices.Contains(now.Finalizers, plan.Finalizer) {
		t.Errorf("%v, %v: want the finalizer", now, err)
	}
}

func TestReads(t *testing.T) {
	ctx, ns := t.Context(), namespace(t)
	c, _ := newClient(t, Options{})
	newClaim(t, plane, ns, "there", "1")
	claim, err := c.GetClaim(ctx, ns, "there")
	if err != nil || claim == nil || claim.Annotations[markKey] != "1" {
		t.Errorf("a claim: %v, %v", claim, err)
	}
	if claim, err := c.GetClaim(ctx, ns, "gone"); claim != nil || err != nil {
		t.Errorf("no claim: %v, %v", claim, err)
	}
	if pv, err := c.GetVolume(ctx, "gone"); pv != nil || err != nil {
		t.Errorf("no volume: %v, %v", pv, err)
	}
	class := cluster.StorageClass(ns, "example.com/other", storagev1.VolumeBindingImmediate)
	if _, err := plane.Client().StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		plane.Client().StorageV1().StorageClasses().Delete(context.Background(), ns, metav1.DeleteOptions{})
	})
	for name, want := range map[string]string{ns: "example.com/other", "gone": ""} {
		if got, err := c.ClassProvisioner(ctx, name); got != want || err != nil {
			t.Errorf("class %s is of %q, %v; want %q", name, got, err, want)
		}
	}
}

// selected is what the API server has. The claim's version is stable: no controller changes it once
// kube-controller-manager has said that there is no such class.
func selected(t *testing.T, c *Client, ns, name string) (claim *corev1.PersistentVolumeClaim, node string, is bool) {
	t.Helper()
	claim, err := c.GetClaim(t.Context(), ns, name)
	if err != nil || claim == nil {
		t.Fatal(claim, err)
	}
	node, is = claim.Annotations[plan.SelectedNode]
	return claim, node, is
}

func TestSetSelectedNode(t *testing.T) {
	ctx, ns := t.Context(), namespace(t)
	c, w := newClient(t, Options{})
	newClaim(t, plane, ns, "claim", "1")
	before, _, _ := selected(t, c, ns, "claim")
	w.forget()
	if won, err := c.SetSelectedNode(ctx, before, "node-a"); !won || err != nil {
		t.Fatalf("the first: %v, %v", won, err)
	}
	if got := w.requests(); len(got) != 1 {
		t.Errorf("requests: %q, want one", got)
	}
	if won, err := c.SetSelectedNode(ctx, before, "node-b"); won || err != nil {
		t.Errorf("from an older version: %v, %v", won, err)
	}
	now, node, _ := selected(t, c, ns, "claim")
	if node != "node-a" || now.Annotations[markKey] != "1" {
		t.Errorf("annotations: %v", now.Annotations)
	}
	if won, err := c.SetSelectedNode(ctx, now, ""); !won || err != nil {
		t.Errorf("removing it: %v, %v", won, err)
	}
	last, _, is := selected(t, c, ns, "claim")
	if is || last.Annotations[markKey] != "1" {
		t.Errorf("annotations: %v", last.Annotations)
	}
	deleteClaim(t, plane, ns, "claim")
	if won, err := c.SetSelectedNode(ctx, last, "node-a"); won || err != nil {
		t.Errorf("on a deleted claim: %v, %v", won, err)
	}
	newClaim(t, plane, ns, "claim", "2")
	if won, err := c.SetSelectedNode(ctx, last, "node-a"); won || err != nil {
		t.Errorf("on another claim of the name: %v, %v", won, err)
	}
	if _, _, is := selected(t, c, ns, "claim"); is {
		t.Error("the other claim was written")
	}
}

// Of the daemons that write the node on the same version of a claim, one wins.
func TestOneWins(t *testing.T) {
	ns := namespace(t)
	c, _ := newClient(t, Options{})
	newClaim(t, plane, ns, "claim", "1")
	claim, _, _ := selected(t, c, ns, "claim")
	oneWins(t, func(node string) (bool, error) { return c.SetSelectedNode(t.Context(), claim, node) })
}

// oneWins has many nodes try something at the same time, of which one is to succeed.
func oneWins(t *testing.T, try func(node string) (won bool, err error)) {
	t.Helper()
	var winners atomic.Int32
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			won, err := try(fmt.Sprintf("node-%d", i))
			if err != nil {
				t.Error(err)
			}
			if won {
				winners.Add(1)
			}
		})
	}
	all.Wait()
	if winners.Load() != 1 {
		t.Errorf("%d won, want one", winners.Load())
	}
}

// A conflict may be the response of a proxy: then the object still exists, and the conflict is the error.
func TestRemoveVolumeInAConflict(t *testing.T) {
	ctx := t.Context()
	c, w := newClient(t, Options{})
	pv := created(t, volume("rm-conflict", "7", plan.Finalizer))
	w.intercept(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodDelete {
			return nil, nil
		}
		status := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`
		return &http.Response{StatusCode: 409, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(status))}, nil
	})
	if err := c.RemoveVolume(ctx, pv); !apierrors.IsConflict(err) {
		t.Errorf("the object is there, and the error is %v", err)
	}
	conflicting := w.respond
	w.intercept(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return nil, errors.New("connection refused") // client-go does not retry it, unlike an EOF
		}
		return conflicting(r)
	})
	if err := c.DeleteVolume(ctx, pv); err == nil || apierrors.IsConflict(err) {
		t.Errorf("a conflict, and no way to see whether the object is there: %v", err)
	}
	w.intercept(nil)
	if err := c.RemoveVolume(ctx, pv); err != nil {
		t.Error(err)
	}
	if err := plane.WaitVolumeGone(ctx, pv.Name); err != nil {
		t.Error(err)
	}
}

// A deletion that was done, and is asked for again by what was known before it: a proxy sent it twice, or its response
// was lost. Another finalizer holds the object, as pv-protection does for a moment.
func TestDeleteVolumeTwice(t *testing.T) {
	ctx := t.Context()
	c, _ := newClient(t, Options{})
	pv := created(t, volume("twice", "7", others))
	for range 2 {
		if err := c.DeleteVolume(ctx, pv); err != nil {
			t.Fatal(err)
		}
	}
	patch := []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
	if _, err := plane.Client().CoreV1().PersistentVolumes().Patch(ctx, pv.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteVolume(ctx, pv); !apierrors.IsConflict(err) {
		t.Errorf("to be retained now: %v", err)
	}
}

// An administrator changes the object after it was decided that it goes: it stays, with its finalizer if that
// was still there.
func TestRemoveVolumeThatChanged(t *testing.T) {
	ctx := t.Context()
	c, w := newClient(t, Options{})
	early, late := volume("rm-early", "8", plan.Finalizer), volume("rm-late", "9", plan.Finalizer)
	early, late = created(t, early), created(t, late)
	now, err := c.ReleaseFinalizer(ctx, late)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{early.Name, late.Name} {
		patch := []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
		if _, err := plane.Client().CoreV1().PersistentVolumes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.RemoveVolume(ctx, early); !apierrors.IsConflict(err) {
		t.Errorf("changed before the finalizer was off: %v", err)
	}
	if err := c.DeleteVolume(ctx, now); !apierrors.IsConflict(err) {
		t.Errorf("changed after the finalizer was off: %v", err)
	}
	// kube-controller-manager takes the finalizer off a volume that is retained, sooner or later.
	got := listed(t, "rm-")
	for _, either := range [][]string{{"rm-early [" + plan.Finalizer + "] false", "rm-early [] false"}, {"rm-late [] false"}} {
		if !slices.ContainsFunc(either, func(line string) bool { return slices.Contains(got, line) }) {
			t.Errorf("volumes: %q, want %q", got, either)
		}
	}
	for _, request := range w.requests() {
		if strings.HasPrefix(request, http.MethodDelete) && strings.Contains(request, early.Name) {
			t.Errorf("%s was asked to be deleted: %s", early.Name, request)
		}
	}
}

// While the directory is moved away, which can take long, an administrator gives the volume to another claim: the
// object stays.
func TestRemoveVolumeOfAnotherClaim(t *testing.T) {
	ctx := t.Context()
	c, _ := newClient(t, Options{})
	for name, patch := range map[string]string{
		"rm-cleared": `{"spec":{"claimRef":null}}`,
		"rm-given":   `{"spec":{"claimRef":{"name":"next","namespace":"default","uid":null,"resourceVersion":null}}}`,
		"rm-taken":   `{"spec":{"claimRef":{"uid":"00000000-0000-0000-0000-0000000000ff","resourceVersion":null}}}`,
	} {
		pv := created(t, volume(name, "8", plan.Finalizer))
		if _, err := plane.Client().CoreV1().PersistentVolumes().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.RemoveVolume(ctx, pv); !apierrors.IsConflict(err) {
			t.Errorf("%s: %v", name, err)
		}
		now, err := plane.Client().CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		if err != nil || now.DeletionTimestamp != nil || !slices.Contains(now.Finalizers, plan.Finalizer) {
			t.Errorf("%s: %v, %v", name, now, err)
		}
	}
}

// A 404 of something in front of the API server, which knows no server, is not its word that an object is
// gone: nothing is taken for absent, and no event given up. The server's own is.
func TestNotFoundOfProxy(t *testing.T) {
	ctx := t.Context()
	c, w := newClient(t, Options{})
	pv := volume("not-found-here", "1", plan.Finalizer)
	asks := map[string]func() error{
		"volume":    func() error { _, err := c.GetVolume(ctx, pv.Name); return err },
		"claim":     func() error { _, err := c.GetClaim(ctx, "default", "none"); return err },
		"node":      func() error { _, err := c.GetNode(ctx, "none"); return err },
		"lease":     func() error { _, err := c.ReadLease(ctx, "none"); return err },
		"tombstone": func() error { _, err := c.ReadTombstone(ctx, "none"); return err },
		"release":   func() error { _, err := c.ReleaseFinalizer(ctx, pv); return err },
		"remove":    func() error { return c.RemoveVolume(ctx, pv) },
	}
	for what, ask := range asks {
		if err := ask(); err != nil {
			t.Errorf("%s, by the server: %v", what, err)
		}
	}
	bodies := map[string]string{
		"text/html":        "<html><body><h1>404 Not Found</h1></body></html>",
		"application/json": `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","message":"404 page not found","code":404}`,
	}
	for kind, body := range bodies {
		w.intercept(func(r *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: http.StatusNotFound, Status: "404 Not Found", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
				Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body)),
			}, nil
		})
		for what, ask := range asks {
			if err := ask(); !apierrors.IsNotFound(err) {
				t.Errorf("%s, by a stranger, %s: %v", what, kind, err)
			}
		}
		if permanent(asks["claim"](), "default", time.Hour) {
			t.Errorf("%s: an event is discarded", kind)
		}
	}
}
