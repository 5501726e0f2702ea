package kube

import (
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/adoptrules"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// Marks are put on and taken off, and nothing else changes; a client that changed the object since
// wins.
func TestPatchVolume(t *testing.T) {
	ctx := t.Context()
	c, _ := newClient(t, Options{})
	was := created(t, volume("marked", "1", others))
	// Its claim does not exist, and kube-controller-manager writes that on the object: once, then
	// it is done.
	eventually(t, "the volume is released", func() bool {
		now, err := c.GetVolume(ctx, "marked")
		if err != nil || now == nil {
			t.Fatal(now, err)
		}
		was = now
		return now.Status.Phase == corev1.VolumeReleased
	})
	pool := plan.Pool{Name: "fast"}
	if _, err := c.PatchVolume(ctx, was, adoptrules.AdoptedPatch(was, pool, "node-a")); err != nil {
		t.Fatal(err)
	}
	now, err := c.GetVolume(ctx, "marked")
	if err != nil || now.Labels[plan.NodeLabel] != "node-a" || now.Annotations[plan.AdoptedAnnotation] != adoptrules.AdoptedWithout ||
		!slices.Contains(now.Finalizers, plan.Finalizer) || !slices.Contains(now.Finalizers, others) {
		t.Errorf("%+v, %v", now.ObjectMeta, err)
	}
	if _, err := c.PatchVolume(ctx, was, adoptrules.UndoPatch(was)); !apierrors.IsConflict(err) {
		t.Errorf("an object that was changed since: %v", err)
	}
	if _, err := c.PatchVolume(ctx, now, adoptrules.UndoPatch(now)); err != nil {
		t.Fatal(err)
	}
	back, err := c.GetVolume(ctx, "marked")
	if err != nil || back.Labels[plan.NodeLabel] != "" || back.Annotations[plan.AdoptedAnnotation] != "" || slices.Contains(back.Finalizers, plan.Finalizer) || !slices.Contains(back.Finalizers, others) {
		t.Errorf("%+v, %v", back.ObjectMeta, err)
	}
}

// Locks of one name are found in every namespace, in both forms.
func TestEachLock(t *testing.T) {
	ctx, client := t.Context(), plane.Client()
	namespace, err := plane.NewNamespace(ctx, "locks")
	if err != nil {
		t.Fatal(err)
	}
	renewed, holder := metav1.NewMicroTime(time.Now()), "pod-1"
	name := "example.com-" + namespace
	for _, n := range []string{name, "other"} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: n}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed}}
		if _, err := client.CoordinationV1().Leases(namespace).Create(ctx, lease, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	record := fmt.Sprintf(`{"holderIdentity":"pod-2","leaseDurationSeconds":15,"renewTime":%q}`, time.Now().UTC().Format(time.RFC3339))
	for n, annotations := range map[string]map[string]string{name: {"control-plane.alpha.kubernetes.io/leader": record}, "no-lock": nil} {
		endpoints := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: n, Annotations: annotations}}
		if _, err := client.CoreV1().Endpoints(namespace).Create(ctx, endpoints, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c, _ := newClient(t, Options{})
	var got []string
	if err := c.EachLock(ctx, name, func(l *coordinationv1.Lease) {
		before, at := l.DeepCopy(), metav1.NewMicroTime(time.Unix(0, 0))
		before.Spec.RenewTime = &at
		got = append(got, adoptrules.Leads(before, l))
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{"pod-1 holds the leader's lock " + namespace + "/" + name, "pod-2 holds the leader's lock " + namespace + "/" + name}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
