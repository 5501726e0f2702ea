package model

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// What the product and people do with the sizes of claims and volume objects.
var (
	asksMore = operation{"more", func(ctx context.Context, r *real) (error, error) {
		return r.asks(ctx, moreRequested(nil, &r.model, 0)), nil
	}}
	asksLess = operation{"less", func(ctx context.Context, r *real) (error, error) {
		return r.asks(ctx, lessRequested(nil, &r.model, 0)), nil
	}}
	grownTo       = more(1).quantity()
	beginsGrowth  = writes("begin", plan.ClaimStatus{Allocated: &grownTo, State: resizings[inProgress]})
	endsGrowth    = writes("end", plan.ClaimStatus{Capacity: &grownTo, Allocated: &grownTo})
	refusesGrowth = writes("refuse", plan.ClaimStatus{Allocated: &grownTo, State: resizings[infeasible]})
	enlarges      = operation{"enlarge", func(ctx context.Context, r *real) (error, error) {
		given := r.seen
		given.size = 1
		return r.client.SetCapacity(ctx, r.given, given.size.quantity()), r.serve(op{kind: writeCapacity, with: given})
	}}
	readsClaim = operation{"read claim", func(ctx context.Context, r *real) (error, error) {
		c, err := r.client.GetClaim(ctx, r.claim.Namespace, r.claim.Name)
		if c != nil {
			r.claim, r.known = c, r.asked(op{kind: getClaim}).claim
		}
		return err, nil
	}}
)

// ofSizes are sequences of them: each write after each change, and as the product does it, which
// reads before it writes.
func ofSizes() (all [][]operation) {
	others := operationsNamed("policy", "claim deleted")
	for _, first := range append([]operation{asksMore, beginsGrowth, endsGrowth, enlarges}, others...) {
		for _, second := range []operation{asksLess, beginsGrowth, endsGrowth, enlarges} {
			all = append(all, []operation{first, second})
		}
	}
	return append(all,
		[]operation{asksMore, readsClaim, beginsGrowth, enlarges, readsClaim, endsGrowth},
		[]operation{asksMore, readsClaim, refusesGrowth, asksLess, readsClaim, beginsGrowth},
		[]operation{asksMore, asksMore, asksLess, readsClaim, endsGrowth, asksLess},
		slices.Concat([]operation{enlarges}, operationsNamed("read again", "release"), []operation{enlarges}),
	)
}

func operationsNamed(names ...string) (all []operation) {
	for _, name := range names {
		i := slices.IndexFunc(operations, func(o operation) bool { return o.name == name })
		all = append(all, operations[i])
	}
	return all
}

// asks writes what the model's claim requests now, if it changed.
func (r *real) asks(ctx context.Context, changed bool) error {
	if !changed {
		return nil
	}
	size := r.model.api.claims[0].asks.quantity()
	patch := fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, size.String())
	_, err := r.plane.Client().CoreV1().PersistentVolumeClaims(r.claim.Namespace).Patch(ctx, r.claim.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// writes writes the status of the claim as it was read last. A claim that is gone is not told from
// one that was changed.
func writes(name string, s plan.ClaimStatus) operation {
	return operation{name, func(ctx context.Context, r *real) (onReal, onModel error) {
		_, onReal = r.client.PatchClaimStatus(ctx, r.claim, s)
		if gone(onReal) == nil && onReal != nil {
			onReal = errChanged
		}
		return onReal, r.serve(op{kind: writeStatus, grow: r.known.patched(s)})
	}}
}

// served are the requests to the model's API server that were compared with a real one. That of nil
// notes nothing.
type served struct {
	mu    sync.Mutex
	kinds map[kind]bool
}

// by has the model's API server serve a request, and notes that.
func (s *served) by(e *etcd, o op) response {
	s.note(o.kind)
	return e.serve(o)
}

func (s *served) note(k kind) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kinds == nil {
		s.kinds = map[kind]bool{}
	}
	s.kinds[k] = true
}

// comparedElsewhere are the requests that TestServer does not make, and what shows how a real API
// server responds.
var comparedElsewhere = map[kind]string{
	eachVolume:     "a list, of which the model's has each object as getVolume",
	listVolumes:    "the same",
	fewVolumes:     "TestFewVolumes (daemon/kube)",
	fewPods:        "TestClaimsOfAPod (test/e2e)",
	writeNode:      "TestSetSelectedNode (daemon/kube)",
	markVolume:     "TestAdopt, TestAdoptOnTwoNodes (test/e2e)",
	getContent:     "TestSnapshot (test/e2e): the server needs other definitions",
	getSnapshot:    "TestSnapshot (test/e2e)",
	writeContent:   "TestSnapshot (test/e2e)",
	releaseContent: "TestSnapshot (test/e2e)",
}

// complete reports each request that was compared nowhere, and each that was, although
// comparedElsewhere says that it is not.
func (s *served) complete(t *testing.T) {
	t.Helper()
	for k := ended + 1; k < onDisk; k++ {
		if !k.local() && s.kinds[k] == (comparedElsewhere[k] != "") {
			t.Errorf("a request that %q: compared %t, and elsewhere %q", kindNames[k], s.kinds[k], comparedElsewhere[k])
		}
	}
}

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
