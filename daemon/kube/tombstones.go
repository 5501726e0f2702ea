package kube

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
)

// A tombstone is a Lease, because the daemon may write Leases in its namespace anyway, and because
// nobody reads a Lease that he does not know.
const (
	// tombstoneLabel's value is plan.Tombstone.Data; other Leases do not have it.
	tombstoneLabel  = "hostpath-provisioner/tombstone"
	tombstoneClaim  = "hostpath-provisioner/claim"
	tombstoneVolume = "hostpath-provisioner/claim-uid"
)

// TombstoneLife is how long tombstones stay. A node that was off for longer keeps its directories.
const TombstoneLife = 90 * 24 * time.Hour

// WriteTombstone writes down what is to become of a volume's data. One that is there already stays, and
// first is false. With the first one of a day, those of more than TombstoneLife ago are removed: by the API server's
// clock, which dated both.
func (c *Client) WriteTombstone(ctx context.Context, t plan.Tombstone) (first bool, err error) {
	made := &coordinationv1.Lease{}
	err = c.coordination.Post().Namespace(c.options.Namespace).Resource("leases").Body(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name:        t.PV,
			Labels:      map[string]string{tombstoneLabel: string(t.Data)},
			Annotations: map[string]string{tombstoneVolume: t.ClaimUID, tombstoneClaim: t.Claim},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &t.Node},
	}).Timeout(callTimeout).Do(ctx).Into(made)
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write down that volume %s went: %w", t.PV, err)
	}
	now := made.CreationTimestamp.Time
	if last := c.pruned.Load(); last == nil || now.Sub(*last) > 24*time.Hour {
		c.pruned.Store(&now)
		// What is not removed now is removed another day.
		_ = c.pruneTombstones(ctx, now.Add(-TombstoneLife))
	}
	return true, nil
}

// ReadTombstone asks the API server for a volume's tombstone. One that does not exist is nil without
// an error.
func (c *Client) ReadTombstone(ctx context.Context, pv string) (*plan.Tombstone, error) {
	lease := &coordinationv1.Lease{}
	err := c.coordination.Get().Namespace(c.options.Namespace).Resource("leases").Name(pv).
		Timeout(callTimeout).Do(ctx).Into(lease)
	switch {
	case absent(err, pv):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read what became of volume %s: %w", pv, err)
	}
	t := &plan.Tombstone{
		PV: lease.Name, ClaimUID: lease.Annotations[tombstoneVolume], Claim: lease.Annotations[tombstoneClaim],
		Data: plan.Action(lease.Labels[tombstoneLabel]),
	}
	if holder := lease.Spec.HolderIdentity; holder != nil {
		t.Node = *holder
	}
	return t, nil
}

func (c *Client) pruneTombstones(ctx context.Context, before time.Time) error {
	all := &coordinationv1.LeaseList{}
	err := c.coordination.Get().Namespace(c.options.Namespace).Resource("leases").
		VersionedParams(&metav1.ListOptions{LabelSelector: tombstoneLabel, Limit: 500}, c.params).
		Timeout(callTimeout).Do(ctx).Into(all)
	if err != nil {
		return err
	}
	for _, lease := range all.Items {
		if !lease.CreationTimestamp.Time.Before(before) {
			continue
		}
		uid := lease.UID
		err := c.coordination.Delete().Namespace(c.options.Namespace).Resource("leases").Name(lease.Name).
			Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}).
			Timeout(callTimeout).Do(ctx).Error()
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}
