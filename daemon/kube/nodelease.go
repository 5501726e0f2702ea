package kube

import (
	"context"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/presence"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// ReadNodeLease is part of presence.API.
func (c *Client) ReadNodeLease(ctx context.Context) (*presence.Lease, error) {
	return c.readNodeLease(ctx, c.options.Node)
}

func (c *Client) readNodeLease(ctx context.Context, node string) (*presence.Lease, error) {
	name := presence.Name(node)
	there, err := c.readLease(publishing(ctx), name, callTimeout)
	return nodeLeaseOf(there), about(err, "read lease %s/%s", c.options.Namespace, name)
}

// nodeLeaseOf converts a Lease object; nil is nil.
func nodeLeaseOf(l *coordinationv1.Lease) *presence.Lease {
	if l == nil {
		return nil
	}
	is := &presence.Lease{UID: string(l.UID), Version: l.ResourceVersion, States: StatesOf(l)}
	if l.Spec.HolderIdentity != nil {
		is.Holder = *l.Spec.HolderIdentity
	}
	return is
}

// StatesOf are what the daemons of a node tell of themselves in its lease.
func StatesOf(l *coordinationv1.Lease) map[string]string {
	all := map[string]string{}
	for key, text := range l.Annotations {
		if strings.HasPrefix(key, presence.StatePrefix) {
			all[key] = text
		}
	}
	return all
}

// WriteNodeLease is part of presence.API. The time in it is for people and other programs.
func (c *Client) WriteNodeLease(ctx context.Context, l presence.Lease) (*presence.Lease, error) {
	seconds, renewed := int32(presence.Duration/time.Second), metav1.NewMicroTime(time.Now())
	now, err := c.putLease(publishing(ctx), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: presence.Name(c.options.Node), UID: types.UID(l.UID), ResourceVersion: l.Version,
			Labels:      map[string]string{plan.NodeLabel: plan.NodeLabelValue(c.options.Node)},
			Annotations: l.States,
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &l.Holder, LeaseDurationSeconds: &seconds, RenewTime: &renewed,
		},
	}, callTimeout)
	return nodeLeaseOf(now), err
}

// DeleteNodeLease deletes the lease of a node whose daemon does not come back, if it is that of a
// host; of any with "". One that does not exist is no error.
func (c *Client) DeleteNodeLease(ctx context.Context, node, host string) error {
	there, err := c.readNodeLease(ctx, node)
	if err != nil || there == nil || host != "" && there.Holder != host {
		return err
	}
	return leaseKind.remove(publishing(ctx), c, c.options.Namespace, presence.Name(node),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
			UID: (*types.UID)(&there.UID), ResourceVersion: &there.Version}})
}
