package kube

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
)

// A lease says what was written, and a write that was overtaken changes nothing.
func TestLease(t *testing.T) {
	ctx := t.Context()
	c, _ := newClient(t, Options{Namespace: "default"})
	if none, err := c.ReadLease(ctx, "shared.p"); none != nil || err != nil {
		t.Fatalf("before: %+v, %v", none, err)
	}
	want := plan.Lease{Name: "shared.p", Pool: "shared", Holder: "node-a_1", Marker: "m", Term: plan.Term{Number: 1}}
	first, err := c.WriteLease(ctx, want)
	if err != nil || first == nil {
		t.Fatalf("%+v, %v", first, err)
	}
	want.Term.UID, want.Version = first.Term.UID, first.Version
	if *first != want || want.Term.UID == "" || want.Version == "" {
		t.Errorf("written %+v, want %+v", *first, want)
	}
	if again, err := c.WriteLease(ctx, plan.Lease{Name: "shared.p", Pool: "shared"}); again != nil || err != nil {
		t.Errorf("made again: %+v, %v", again, err)
	}
	spoken := *first
	spoken.Holder, spoken.Speaks, spoken.Term.Number = "node-b_1", true, 2
	second, err := c.WriteLease(ctx, spoken)
	if err != nil || second == nil || !second.Speaks || second.Holder != "node-b_1" || second.Term.Number != 2 {
		t.Fatalf("%+v, %v", second, err)
	}
	if late, err := c.WriteLease(ctx, *first); late != nil || err != nil {
		t.Errorf("overtaken: %+v, %v", late, err)
	}
	left := *second
	left.Holder, left.Speaks = "", false
	if _, err := c.WriteLease(ctx, left); err != nil {
		t.Error(err)
	}
	now, err := c.ReadLease(ctx, "shared.p")
	if err != nil || now == nil || now.Holder != "" || now.Speaks || now.Marker != "m" || now.Term != second.Term {
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
	free, err := c.WriteLease(ctx, plan.Lease{Name: "race.p", Pool: "race"})
	if err != nil {
		t.Fatal(err)
	}
	var won atomic.Int32
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			mine := *free
			mine.Holder = fmt.Sprintf("node-%d", i)
			mine.Term.Number++
			if now, err := c.WriteLease(ctx, mine); err != nil {
				t.Error(err)
			} else if now != nil {
				won.Add(1)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 {
		t.Errorf("%d have it", won.Load())
	}
}

// The watch brings the leases of the pools that were asked for, in the daemon's namespace alone.
func TestLeases(t *testing.T) {
	ctx := t.Context()
	c, _ := newClient(t, Options{Namespace: "default"})
	elsewhere, _ := newClient(t, Options{Namespace: "kube-public"})
	for _, w := range []struct {
		c    *Client
		pool string
	}{{c, "seen"}, {c, "unseen"}, {elsewhere, "seen"}} {
		if _, err := w.c.WriteLease(ctx, plan.Lease{Name: w.pool + ".watched", Pool: w.pool, Holder: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	changes := make(chan *coordinationv1.Lease, 10)
	sieve := c.Leases([]string{"seen", "other"}, func(_, now *coordinationv1.Lease) { changes <- now })
	go sieve.Run(ctx)
	<-sieve.Synced()
	if got := sieve.List(); len(got) != 1 || LeaseOf(got[0]).Pool != "seen" || got[0].Namespace != "default" {
		t.Fatalf("got %v", got)
	}
	<-changes
	next := *LeaseOf(sieve.List()[0])
	next.Holder = "y"
	if _, err := c.WriteLease(ctx, next); err != nil {
		t.Fatal(err)
	}
	if now := LeaseOf(<-changes); now == nil || now.Holder != "y" {
		t.Errorf("changed to %+v", now)
	}
}
