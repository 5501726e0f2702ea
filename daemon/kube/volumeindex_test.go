package kube

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// A volume that is kept for a claim is found by its label if it was written since the policy, and
// by a look at all volumes if not. A policy that the API server does not apply is told from one
// that it applies.
func TestVolumeIndex(t *testing.T) {
	t.Parallel()
	own, c, _ := withPolicy(t)
	own.Since(t, cluster.MutatingPolicies, "MutatingAdmissionPolicy")
	ctx, volumes := t.Context(), own.Client().CoreV1().PersistentVolumes()
	create := func(name, claim string) *corev1.PersistentVolume {
		t.Helper()
		v := volume(name, name)
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: claim}
		v, err := volumes.Create(ctx, v, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	read := func(by func(visit func(*corev1.PersistentVolume)) error) (names []string) {
		t.Helper()
		if err := by(func(v *corev1.PersistentVolume) { names = append(names, v.Name) }); err != nil {
			t.Fatal(err)
		}
		return names
	}
	kept := func(claims ...string) []string {
		return read(func(visit func(*corev1.PersistentVolume)) error { return c.EachKept(ctx, claims, visit) })
	}
	before := create("before", "a")
	if id, err := c.VolumeIndex(ctx); id != "" || err != nil {
		t.Errorf("without a policy: %q, %v", id, err)
	}
	if labels, err := c.TryVolumeIndex(ctx, before); labels || err != nil {
		t.Errorf("without a policy: %t, %v", labels, err)
	}
	if err := own.Apply(ctx, []byte(claimindex.VolumesManifest)); err != nil {
		t.Fatal(err)
	}
	every := time.NewTicker(50 * time.Millisecond) // an API server shows nowhere which policies it applies
	defer every.Stop()
	for labels := false; !labels; <-every.C {
		var err error
		if labels, err = c.TryVolumeIndex(ctx, before); err != nil {
			t.Fatal(err)
		}
	}
	id, err := c.VolumeIndex(ctx)
	if id == "" || err != nil {
		t.Errorf("with a policy: %q, %v", id, err)
	}
	create("after", "a")
	create("other", "b")
	if got := kept("a"); !slices.Equal(got, []string{"after"}) {
		t.Errorf("kept for a: %q", got)
	}
	if got := kept("a", "b"); !slices.Equal(got, []string{"after", "other"}) {
		t.Errorf("kept for a and b: %q", got)
	}
	if got := read(func(visit func(*corev1.PersistentVolume)) error { return c.EachMissed(ctx, visit) }); !slices.Equal(got, []string{"before"}) {
		t.Errorf("not labelled: %q", got)
	}
	bindings := own.Client().AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	if err := bindings.Delete(ctx, claimindex.VolumesName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if id, err := c.VolumeIndex(ctx); id != "" || err != nil {
		t.Errorf("without a binding: %q, %v", id, err)
	}
	if err := own.Apply(ctx, []byte(claimindex.VolumesManifest)); err != nil {
		t.Fatal(err)
	}
	if again, err := c.VolumeIndex(ctx); again == "" || again == id || err != nil {
		t.Errorf("with another binding: %q after %q, %v", again, id, err)
	}
	gone := before.DeepCopy()
	gone.UID = "other"
	if labels, err := c.TryVolumeIndex(ctx, gone); labels || err != nil {
		t.Errorf("of another volume: %t, %v", labels, err)
	}
}
