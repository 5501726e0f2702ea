package kube

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
)

func TestTombstones(t *testing.T) {
	ctx := t.Context()
	ownNamespace(t)
	c, w := newClient(t, Options{})
	if none, err := c.ReadTombstone(ctx, "pvc-none"); none != nil || err != nil {
		t.Errorf("of a volume that has none: %+v, %v", none, err)
	}
	want := plan.Tombstone{PV: "pvc-u-1", ClaimUID: "u-1", Claim: "default/data", Node: "node-a", Data: plan.Retain}
	if first, err := c.WriteTombstone(ctx, want); !first || err != nil {
		t.Fatalf("the first: %v, %v", first, err)
	}
	other := want
	other.Data, other.Node = plan.Delete, "node-b"
	if first, err := c.WriteTombstone(ctx, other); first || err != nil {
		t.Errorf("the second: %v, %v", first, err)
	}
	if got, err := c.ReadTombstone(ctx, want.PV); err != nil || got == nil || *got != want {
		t.Errorf("read %+v, %v; the first one stays", got, err)
	}
	w.forget()
	for _, name := range []string{"pvc-u-2", "pvc-u-3"} {
		if _, err := c.WriteTombstone(ctx, plan.Tombstone{PV: name, ClaimUID: name, Data: plan.Delete}); err != nil {
			t.Error(err)
		}
	}
	if n := w.count("limit"); n != 0 {
		t.Errorf("they were looked through %d times more on the same day", n)
	}
}

// Tombstones go when they are old, and nothing else in the namespace does.
func TestTombstonesGo(t *testing.T) {
	ctx := t.Context()
	ownNamespace(t)
	c, _ := newClient(t, Options{})
	if _, err := c.WriteTombstone(ctx, plan.Tombstone{PV: "pvc-old", ClaimUID: "old", Data: plan.Delete}); err != nil {
		t.Fatal(err)
	}
	leases := plane.Client().CoordinationV1().Leases(DefaultNamespace)
	lease, err := leases.Get(ctx, "pvc-old", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	another := lease.DeepCopy()
	another.ObjectMeta = metav1.ObjectMeta{Name: "another"}
	if _, err := leases.Create(ctx, another, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	there := func(name string) bool {
		_, err := leases.Get(context.WithoutCancel(ctx), name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil
	}
	if err := c.pruneTombstones(ctx, lease.CreationTimestamp.Time); err != nil || !there("pvc-old") {
		t.Errorf("one that is not older went, %v", err)
	}
	if err := c.pruneTombstones(ctx, lease.CreationTimestamp.Add(time.Second)); err != nil || there("pvc-old") {
		t.Errorf("one that is older stayed, %v", err)
	}
	if !there("another") {
		t.Error("a lease that is no tombstone went")
	}
}

// ownNamespace makes the namespace of the daemon's objects, as the manifests do.
func ownNamespace(t *testing.T) {
	t.Helper()
	_, err := plane.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: DefaultNamespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}
