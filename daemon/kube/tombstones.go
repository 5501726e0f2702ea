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

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
)

// A tombstone is a Lease, because the daemon may write Leases in its namespace anyway, and because
// nobody reads a Lease that he does not know.
const (
	// tombstoneLabel's value is plan.Tombstone.Data; other Leases do not have it.
	tombstoneLabel  = "hostpath-provisioner/tombstone"
	tombstoneClaim  = "hostpath-provisioner/claim"
	tombstoneVolume = "hostpath-provisioner/claim-uid"
	tombstoneClass  = "hostpath-provisioner/class"
	// tombstoneGroup's value is a hash of namespace and class. Those of versions that had no such label are
	// read as before, and go by their age alone.
	tombstoneGroup = "hostpath-provisioner/tombstone-group"
)

// WriteTombstone writes down what is to become of a volume's data. One that is there already stays, and
// first is false. RunTombstoneGC then sees to it that there are not too many.
func (c *Client) WriteTombstone(ctx context.Context, t plan.Tombstone) (first bool, err error) {
	made, group := &coordinationv1.Lease{}, groupOf(t)
	err = c.coordination.Post().Namespace(c.options.Namespace).Resource("leases").Body(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name:        t.PV,
			Labels:      map[string]string{tombstoneLabel: string(t.Data), tombstoneGroup: group},
			Annotations: map[string]string{tombstoneVolume: t.ClaimUID, tombstoneClaim: t.Claim, tombstoneClass: t.Class},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &t.Node},
	}).Timeout(callTimeout).Do(ctx).Into(made)
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write down that volume %s went: %w", t.PV, err)
	}
	c.tombstones.added(group, made.CreationTimestamp.Time, time.Now())
	return true, nil
}

// groupOf is the label value of those that a tombstone is counted with.
func groupOf(t plan.Tombstone) string {
	namespace, _, _ := strings.Cut(t.Claim, "/")
	sum := sha256.Sum256([]byte(namespace + "\x00" + t.Class))
	return hex.EncodeToString(sum[:16])
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
		Class: lease.Annotations[tombstoneClass], Data: plan.Action(lease.Labels[tombstoneLabel]),
	}
	if holder := lease.Spec.HolderIdentity; holder != nil {
		t.Node = *holder
	}
	return t, nil
}
