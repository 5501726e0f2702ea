package model

import (
	"context"
	"fmt"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// leases is a lease and a tombstone on a real API server, beside those of the model, and what two
// daemons know of the lease.
type leases struct {
	client *kube.Client
	name   string
	model  state
	served *served
	known  [nodes]leadership.Lease // on the real server
	seen   [nodes]lease            // in the model
}

// ofLeases are what daemons do with them. Each returns what the real server and the model's
// returned.
var ofLeases = []struct {
	name string
	do   func(ctx context.Context, l *leases) (onReal, onModel bool, err error)
}{
	{"a writes", func(ctx context.Context, l *leases) (bool, bool, error) { return l.writes(ctx, 0) }},
	{"b writes", func(ctx context.Context, l *leases) (bool, bool, error) { return l.writes(ctx, 1) }},
	{"a reads", func(ctx context.Context, l *leases) (bool, bool, error) { return l.reads(ctx, 0) }},
	{"b reads", func(ctx context.Context, l *leases) (bool, bool, error) { return l.reads(ctx, 1) }},
	{"buries", func(ctx context.Context, l *leases) (bool, bool, error) { return l.buries(ctx, plan.Delete) }},
	{"buries and keeps", func(ctx context.Context, l *leases) (bool, bool, error) { return l.buries(ctx, plan.Retain) }},
}

// writes has a daemon take the lease that it knows.
func (l *leases) writes(ctx context.Context, node int) (onReal, onModel bool, err error) {
	token := uint8(node + 1)
	to := l.known[node]
	to.Name, to.Pool, to.Holder, to.Term.Token = l.name, poolNames[sharedPool], identityOf(holderOf(node, 0)), termOf(token).Token
	now, err := l.client.WriteLease(ctx, to)
	if now != nil {
		l.known[node] = *now
	}
	e := newElection(holderOf(node, 0))
	e.s = &l.model
	next := leadership.Lease{}
	if was := l.seen[node].as(); was != nil {
		next = *was
	}
	next.Holder, next.Term = to.Holder, termOf(token)
	then, wrong := e.WriteLease(ctx, next)
	if then != nil {
		l.seen[node] = leaseOf(then)
	}
	if err == nil {
		err = wrong
	}
	return now != nil, then != nil, err
}

// reads has a daemon read it.
func (l *leases) reads(ctx context.Context, node int) (onReal, onModel bool, err error) {
	l.served.note(readLease)
	now, err := l.client.ReadLease(ctx, l.name)
	if now != nil {
		l.known[node] = *now
	}
	l.seen[node] = l.model.lease
	return now != nil, l.model.lease.exists, err
}

func (l *leases) volume() string { return "pvc-of-" + l.name }

func (l *leases) buries(ctx context.Context, data plan.Action) (onReal, onModel bool, err error) {
	onReal, err = l.client.WriteTombstone(ctx, plan.Tombstone{PV: l.volume(), ClaimUID: "u", Claim: "ns/c", Class: "c", Node: "n", Data: data})
	return onReal, l.served.by(&l.model.api, op{kind: writeTomb, with: object{retain: data == plan.Retain}}).yes, err
}

// differs is how the real objects differ from the model's, "" if they do not.
func (l *leases) differs(ctx context.Context) string {
	now, err := l.client.ReadLease(ctx, l.name)
	t, err2 := l.client.ReadTombstone(ctx, l.volume())
	tombIs := tomb{exists: t != nil, retain: t != nil && t.Data == plan.Retain}
	switch want, buried := l.model.lease.as(), l.served.by(&l.model.api, op{kind: readTomb}); {
	case err != nil || err2 != nil:
		return fmt.Sprint(err, err2)
	case (now == nil) != (want == nil), now != nil && (now.Holder != want.Holder || now.Term.Token != want.Term.Token):
		return fmt.Sprintf("the lease is %+v, the model's %+v", now, want)
	case tombIs != tomb{buried.yes, buried.volume.retain}:
		return fmt.Sprintf("the tombstone is %+v, the model's %+v", tombIs, buried)
	}
	return ""
}

// sequencesOfLeases are those of three operations, and those in which a daemon writes what was
// changed since it read.
func sequencesOfLeases() (all [][]int) {
	n := len(ofLeases)
	for i := range n * n * n {
		all = append(all, []int{i / n / n, i / n % n, i % n})
	}
	return append(all, []int{0, 3, 0, 1}, []int{0, 3, 1, 0}, []int{1, 2, 1, 0}, []int{1, 2, 0, 1})
}

// compareLeases does each sequence.
func compareLeases(ctx context.Context, t *testing.T, client *kube.Client, done *served) {
	t.Helper()
	for i, sequence := range sequencesOfLeases() {
		l := &leases{client: client, served: done, name: fmt.Sprint("lease-", i)}
		done := ""
		for _, at := range sequence {
			done += ofLeases[at].name + ", "
			onReal, onModel, err := ofLeases[at].do(ctx, l)
			if wrong := l.differs(ctx); err != nil || onReal != onModel || wrong != "" {
				t.Errorf("%s: returned %t, %v, and on the model %t; %s", done, onReal, err, onModel, wrong)
			}
		}
	}
}
