package kube

import (
	"reflect"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/presence"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// A node's lease is made, renewed, lost to another writer, and deleted by the one who holds it
// alone.
func TestNodeLease(t *testing.T) {
	ctx, ns := t.Context(), namespace(t)
	c, _ := newClient(t, Options{Namespace: ns, Self: plan.Self{Provisioner: ns, Node: "node-a.b"}})
	if l, err := c.ReadNodeLease(ctx); l != nil || err != nil {
		t.Fatalf("before there is one: %v, %v", l, err)
	}
	made, err := c.WriteNodeLease(ctx, presence.Lease{Holder: "node-a.b_1"})
	must(t, err)
	second := presence.Lease{Holder: "node-a.b_2"}
	if again, err := c.WriteNodeLease(ctx, second); again != nil || err != nil {
		t.Errorf("it is made twice: %v, %v", again, err)
	}
	made.States = map[string]string{presence.StateKey(ns): "{}"}
	renewed, err := c.WriteNodeLease(ctx, *made)
	must(t, err)
	if renewed.Version == made.Version || renewed.UID != made.UID ||
		renewed.Holder != "node-a.b_1" || renewed.States[presence.StateKey(ns)] != "{}" {
		t.Errorf("%+v became %+v", made, renewed)
	}
	if late, err := c.WriteNodeLease(ctx, *made); late != nil || err != nil {
		t.Errorf("an earlier version is written: %v, %v", late, err)
	}
	there, err := c.ReadNodeLease(ctx)
	if must(t, err); !reflect.DeepEqual(there, renewed) {
		t.Errorf("read %+v, written %+v", there, renewed)
	}
	object := plane.Client().CoordinationV1().Leases(ns)
	l, err := object.Get(ctx, "hostpath-provisioner-node.node-a.b", metav1.GetOptions{})
	if err != nil || l.Labels[plan.NodeLabel] != "node-a.b" || *l.Spec.LeaseDurationSeconds != 90 ||
		l.Spec.RenewTime == nil {
		t.Errorf("%+v, %v", l, err)
	}
	must(t, c.DeleteNodeLease(ctx, "node-a.b", "node-a.b_2"))
	if there, err = c.ReadNodeLease(ctx); there == nil || err != nil {
		t.Errorf("another's is deleted: %v", err)
	}
	must(t, c.DeleteNodeLease(ctx, "node-a.b", "node-a.b_1"))
	must(t, c.DeleteNodeLease(ctx, "node-a.b", "node-a.b_1"))
	if late, err := c.WriteNodeLease(ctx, *renewed); late != nil || err != nil {
		t.Errorf("one that was deleted is renewed: %v, %v", late, err)
	}
	_, err = object.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: presence.Name("node-a.b")}}, metav1.CreateOptions{})
	must(t, err)
	if there, err = c.ReadNodeLease(ctx); err != nil || there == nil || there.Holder != "" {
		t.Errorf("one without a holder: %+v, %v", there, err)
	}
	if presence.Name(strings.Repeat("a", 253)) != "" ||
		len(presence.Name(strings.Repeat("a", 227))) != 253 {
		t.Error("the longest name")
	}
}
