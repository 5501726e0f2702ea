package model

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	beginsGrowth = operation{"begin", func(ctx context.Context, r *real) (error, error) {
		target := more(1).quantity()
		return r.status(ctx, plan.ClaimStatus{Allocated: &target, State: resizings[inProgress]})
	}}
	endsGrowth = operation{"end", func(ctx context.Context, r *real) (error, error) {
		target := more(1).quantity()
		return r.status(ctx, plan.ClaimStatus{Capacity: &target, Allocated: &target})
	}}
	refusesGrowth = operation{"refuse", func(ctx context.Context, r *real) (error, error) {
		target := more(1).quantity()
		return r.status(ctx, plan.ClaimStatus{Allocated: &target, State: resizings[infeasible]})
	}}
	enlarges = operation{"enlarge", func(ctx context.Context, r *real) (error, error) {
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
	changes := []operation{asksMore, beginsGrowth, endsGrowth, enlarges, operationNamed("policy"), operationNamed("claim deleted")}
	for _, first := range changes {
		for _, second := range []operation{asksLess, beginsGrowth, endsGrowth, enlarges} {
			all = append(all, []operation{first, second})
		}
	}
	again := operationNamed("read again")
	return append(all,
		[]operation{asksMore, readsClaim, beginsGrowth, enlarges, readsClaim, endsGrowth},
		[]operation{asksMore, readsClaim, refusesGrowth, asksLess, readsClaim, beginsGrowth},
		[]operation{asksMore, asksMore, asksLess, readsClaim, endsGrowth, asksLess},
		[]operation{enlarges, again, operationNamed("release"), enlarges},
	)
}

func operationNamed(name string) operation {
	return operations[slices.IndexFunc(operations, func(o operation) bool { return o.name == name })]
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

// status writes the status of the claim as it was read last. A claim that is gone is not told from
// one that was changed.
func (r *real) status(ctx context.Context, s plan.ClaimStatus) (onReal, onModel error) {
	_, onReal = r.client.PatchClaimStatus(ctx, r.claim, s)
	if gone(onReal) == nil && onReal != nil {
		onReal = errChanged
	}
	return onReal, r.serve(op{kind: writeStatus, grow: r.known.patched(s)})
}
