package kube

import (
	"math"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// A lease says what was written, and a write that was overtaken changes nothing.
func TestLease(t *testing.T) {
	ctx := t.Context()
	c, _ := newClient(t, Options{Namespace: "default"})
	if none, err := c.ReadLease(ctx, "shared.p"); none != nil || err != nil {
		t.Fatalf("before: %+v, %v", none, err)
	}
	want := leadership.Lease{Name: "shared.p", Pool: "shared", Holder: "node-a_1", Marker: "m", Term: leadership.Term{Number: 1, Token: "t"}}
	first, err := c.WriteLease(ctx, want)
	if err != nil || first == nil {
		t.Fatalf("%+v, %v", first, err)
	}
	want.Term.UID, want.Version = first.Term.UID, first.Version
	if *first != want || want.Term.UID == "" || want.Version == "" {
		t.Errorf("written %+v, want %+v", *first, want)
	}
	if again, err := c.WriteLease(ctx, leadership.Lease{Name: "shared.p", Pool: "shared"}); again != nil || err != nil {
		t.Errorf("made again: %+v, %v", again, err)
	}
	spoken := *first
	spoken.Holder, spoken.Reporter, spoken.Term.Number = "node-b_1", true, 2
	second, err := c.WriteLease(ctx, spoken)
	if err != nil || second == nil || !second.Reporter || second.Holder != "node-b_1" || second.Term.Number != 2 {
		t.Fatalf("%+v, %v", second, err)
	}
	if late, err := c.WriteLease(ctx, *first); late != nil || err != nil {
		t.Errorf("overtaken: %+v, %v", late, err)
	}
	left := *second
	left.Holder, left.Reporter = "", false
	if _, err := c.WriteLease(ctx, left); err != nil {
		t.Error(err)
	}
	now, err := c.ReadLease(ctx, "shared.p")
	if err != nil || now == nil || now.Holder != "" || now.Reporter || now.Marker != "m" || now.Term != second.Term {
		t.Errorf("given up: %+v, %v", now, err)
	}
	if err := plane.Client().CoordinationV1().Leases("default").Delete(ctx, "shared.p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if gone, err := c.WriteLease(ctx, *now); gone != nil || err != nil {
		t.Errorf("deleted meanwhile: %+v, %v", gone, err)
	}
}

// Of many daemons that take a lease at the same time one has it.
func TestOneTakesTheLease(t *testing.T) {
	ctx := t.Context()
	c, _ := newClient(t, Options{Namespace: "default"})
	free, err := c.WriteLease(ctx, leadership.Lease{Name: "race.p", Pool: "race"})
	if err != nil {
		t.Fatal(err)
	}
	oneWins(t, func(node string) (bool, error) {
		mine := *free
		mine.Holder = node
		mine.Term.Number++
		now, err := c.WriteLease(ctx, mine)
		return now != nil, err
	})
}

// What no daemon writes into a lease is named, and goes with the next write.
func TestLeaseDamage(t *testing.T) {
	ctx := t.Context()
	c, _ := newClient(t, Options{Namespace: "default"})
	leases := plane.Client().CoordinationV1().Leases("default")
	now, err := c.WriteLease(ctx, leadership.Lease{Name: "damaged.p", Pool: "damaged", Holder: "x", Marker: "m", Term: leadership.Term{Number: 1, Token: "t"}})
	if err != nil || now.Damage != "" {
		t.Fatalf("%+v, %v", now, err)
	}
	owner, err := plane.Client().CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil { // one that does not exist makes the garbage collector delete the lease
		t.Fatal(err)
	}
	for _, d := range []struct {
		patch, want string
		number      int32 // of the term
	}{
		{`{"metadata":{"annotations":{"a":"b"}}}`, "an annotation", 1},
		{`{"metadata":{"labels":{"a":"b"}}}`, "a label", 1},
		{`{"metadata":{"finalizers":["a.example/b"],"ownerReferences":[{"apiVersion":"v1","kind":"Service","name":"kubernetes","uid":"` + string(owner.UID) + `"}]}}`, "an owner reference, a finalizer", 1},
		{`{"spec":{"leaseDurationSeconds":2147483647}}`, "another duration", 1},
		{`{"spec":{"renewTime":"2999-01-01T00:00:00.000000Z"}}`, "a renewal time more than 24 hours ahead of this node's clock", 1},
		{`{"spec":{"renewTime":null}}`, "no renewal time", 1},
		{`{"spec":{"acquireTime":"2999-01-01T00:00:00.000000Z"}}`, "a field that the daemon does not use", 1},
		{`{"spec":{"leaseTransitions":2147483647}}`, "", math.MaxInt32},
	} {
		if _, err := leases.Patch(ctx, "damaged.p", types.MergePatchType, []byte(d.patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if now, err = c.ReadLease(ctx, "damaged.p"); err != nil || now.Damage != d.want || now.Term.Number != d.number {
			t.Errorf("%s: %q in term %d, %v, want %q in %d", d.patch, now.Damage, now.Term.Number, err, d.want, d.number)
		}
		now.Term = now.Term.Next("t")
		if now, err = c.WriteLease(ctx, *now); err != nil || now == nil || now.Damage != "" {
			t.Fatalf("%s: written anew %+v, %v", d.patch, now, err)
		}
		now.Term.Number = 1
		if now, err = c.WriteLease(ctx, *now); err != nil {
			t.Fatal(err)
		}
	}
}

// The watch brings the leases of the pools that were asked for, of the daemon's provisioner and in
// its namespace alone.
func TestLeases(t *testing.T) {
	ctx := t.Context()
	c, _ := newClient(t, Options{Namespace: "default", Self: plan.Self{Provisioner: "watched"}})
	elsewhere, _ := newClient(t, Options{Namespace: "kube-public"})
	for _, w := range []struct {
		c                 *Client
		provisioner, pool string
	}{{c, "watched", "seen"}, {c, "watched", "unseen"}, {c, "another", "seen"}, {elsewhere, "watched", "seen"}} {
		if _, err := w.c.WriteLease(ctx, leadership.Lease{Name: leadership.Name(w.provisioner, w.pool), Pool: w.pool, Holder: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	changes := make(chan *coordinationv1.Lease, 10)
	leases := c.Leases([]string{"seen", "other"}, func(_, now *coordinationv1.Lease) { changes <- now })
	go leases.Run(ctx)
	<-leases.Synced()
	if got := leases.List(); len(got) != 1 || LeaseOf(got[0]).Pool != "seen" || got[0].Namespace != "default" {
		t.Fatalf("got %v", got)
	}
	<-changes
	next := *LeaseOf(leases.List()[0])
	next.Holder = "y"
	if _, err := c.WriteLease(ctx, next); err != nil {
		t.Fatal(err)
	}
	if now := LeaseOf(<-changes); now == nil || now.Holder != "y" {
		t.Errorf("changed to %+v", now)
	}
}
