package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// A tombstone is a Lease, because the daemon may write Leases in its namespace anyway, and because
// no other program reads a Lease that it does not know.
const (
	// tombstoneLabel has the value plan.Tombstone.Data; other Leases do not have it.
	tombstoneLabel  = "hostpath-provisioner/tombstone"
	tombstoneClaim  = "hostpath-provisioner/claim"
	tombstoneVolume = "hostpath-provisioner/claim-uid"
	tombstoneClass  = "hostpath-provisioner/class"
	// tombstoneGroup has a hash of namespace and class as its value. Tombstones of versions without
	// this label are read as before, and are collected by their age alone.
	tombstoneGroup = "hostpath-provisioner/tombstone-group"
)

// WriteTombstone creates the tombstone of a volume, which tells every node what to do with the
// data. One that exists stays as it is, and first is false. But Retain replaces Delete: that was
// written before an administrator changed the policy. RunTombstoneGC deletes surplus ones.
//
// A crash between the two leaves no tombstone, by which every node keeps its data; the next try
// writes one.
func (c *Client) WriteTombstone(ctx context.Context, t plan.Tombstone) (first bool, err error) {
	first, err = c.createTombstone(ctx, t)
	if first || err != nil || t.Data != plan.Retain {
		return first, err
	}
	lease, err := c.readLease(ctx, t.PV, callTimeout)
	if err != nil || lease != nil && lease.Labels[tombstoneLabel] != string(plan.Delete) {
		return false, err
	}
	if lease != nil {
		if err := c.deleteTombstones(ctx, []tombstone{{name: lease.Name, uid: lease.UID}}); err != nil {
			return false, fmt.Errorf("take back that volume %s goes with its data: %w", t.PV, err)
		}
	}
	return c.createTombstone(ctx, t)
}

func (c *Client) createTombstone(ctx context.Context, t plan.Tombstone) (first bool, err error) {
	group := groupOf(t)
	made, err := leaseKind.create(ctx, c, c.options.Namespace, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name:        t.PV,
			Labels:      map[string]string{tombstoneLabel: string(t.Data), tombstoneGroup: group},
			Annotations: map[string]string{tombstoneVolume: t.ClaimUID, tombstoneClaim: t.Claim, tombstoneClass: t.Class},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &t.Node},
	})
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write down that volume %s went: %w", t.PV, err)
	}
	c.tombstones.added(group, made.CreationTimestamp.Time, time.Now())
	return true, nil
}

// groupOf returns the label value of the tombstones of the same namespace and class.
func groupOf(t plan.Tombstone) string {
	namespace, _, _ := strings.Cut(t.Claim, "/")
	sum := sha256.Sum256([]byte(namespace + "\x00" + t.Class))
	return hex.EncodeToString(sum[:16])
}

// ReadTombstone requests a volume's tombstone from the API server. It returns nil without an error
// if there is none.
func (c *Client) ReadTombstone(ctx context.Context, pv string) (*plan.Tombstone, error) {
	lease, err := c.readLease(ctx, pv, callTimeout)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read what became of volume %s: %w", pv, err)
	case lease == nil:
		return nil, nil
	}
	t := &plan.Tombstone{
		PV: lease.Name, ClaimUID: lease.Annotations[tombstoneVolume], Claim: lease.Annotations[tombstoneClaim],
		Class: lease.Annotations[tombstoneClass], Data: plan.Action(lease.Labels[tombstoneLabel]),
	}
	if holder := lease.Spec.HolderIdentity; holder != nil {
		t.Node = *holder
	}
	return t, nil
}
