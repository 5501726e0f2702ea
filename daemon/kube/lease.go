package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/presence"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// Annotations of a lease.
const (
	leaseMarker = "hostpath-provisioner/marker" // leadership.Lease.Marker
	leaseSpeaks = "hostpath-provisioner/speaks" // "true": leadership.Lease.Reporter
	leaseTerm   = "hostpath-provisioner/term"   // leadership.Term.Token
)

// leaseTimeout is the limit of a request about a lease: a holder without a response must stop its
// work before another daemon begins.
const leaseTimeout = leadership.Trust / 2

// Leases returns an informer of the leases of these pools of Options.Provisioner, in
// Options.Namespace. onChange may be nil.
func (c *Client) Leases(pools []string, onChange func(old, new *coordinationv1.Lease)) *Informer[*coordinationv1.Lease] {
	source := leaseKind.source(c, selection{namespace: c.options.Namespace,
		labels: plan.PoolLabel + " in (" + strings.Join(pools, ",") + ")"})
	names := map[string]bool{}
	for _, pool := range pools {
		names[leadership.Name(c.options.Provisioner, pool)] = true
	}
	// Not reduced by a transform: damage is found in the fields that no daemon writes. There is one
	// lease for each pool.
	return newInformer(c, source, func(l *coordinationv1.Lease) bool { return names[l.Name] }, withoutManagedFields, onChange).WatchList()
}

// LeaseOf converts a Lease object; nil is nil.
func LeaseOf(l *coordinationv1.Lease) *leadership.Lease {
	if l == nil {
		return nil
	}
	lease := &leadership.Lease{
		Name: l.Name, Pool: l.Labels[plan.PoolLabel], Version: l.ResourceVersion,
		Marker: l.Annotations[leaseMarker], Reporter: l.Annotations[leaseSpeaks] == "true",
		Term: leadership.Term{UID: string(l.UID), Token: l.Annotations[leaseTerm]}, Damage: damage(l, time.Now()),
	}
	if l.Spec.HolderIdentity != nil {
		lease.Holder = *l.Spec.HolderIdentity
	}
	if l.Spec.LeaseTransitions != nil {
		lease.Term.Number = *l.Spec.LeaseTransitions
	}
	return lease
}

// damage names the fields of a lease that no daemon writes, "" if there are none. The next write
// removes them, because it replaces the whole object.
func damage(l *coordinationv1.Lease, now time.Time) string {
	var found []string
	for key := range l.Annotations {
		if key != leaseMarker && key != leaseSpeaks && key != leaseTerm {
			found = append(found, "an annotation")
			break
		}
	}
	for key := range l.Labels {
		if key != plan.PoolLabel {
			found = append(found, "a label")
			break
		}
	}
	if len(l.OwnerReferences) > 0 {
		found = append(found, "an owner reference")
	}
	if len(l.Finalizers) > 0 {
		found = append(found, "a finalizer")
	}
	s := l.Spec
	if s.LeaseDurationSeconds == nil || *s.LeaseDurationSeconds != int32(leadership.Duration/time.Second) {
		found = append(found, "another duration")
	}
	switch {
	case s.RenewTime == nil:
		found = append(found, "no renewal time")
	case s.RenewTime.Time.After(now.Add(farAhead)):
		found = append(found, "a renewal time more than 24 hours ahead of this node's clock")
	}
	if s.AcquireTime != nil || s.Strategy != nil || s.PreferredHolder != nil {
		found = append(found, "a field that the daemon does not use")
	}
	return strings.Join(found, ", ")
}

// farAhead is more than the clocks of two hosts differ.
const farAhead = 24 * time.Hour

// ReadLease requests a lease from the API server. It returns nil without an error if the lease does
// not exist.
func (c *Client) ReadLease(ctx context.Context, name string) (*leadership.Lease, error) {
	there, err := leaseKind.get(ctx, c, c.options.Namespace, name, within(leaseTimeout))
	return LeaseOf(there), err
}

// WriteLease writes a lease if it is still at the given Version, or creates it if Version is "". It
// returns the written lease, and nil without an error if another client wrote it meanwhile.
func (c *Client) WriteLease(ctx context.Context, l leadership.Lease) (*leadership.Lease, error) {
	now, err := c.putLease(ctx, leaseObject(l, time.Now()), leaseTimeout)
	return LeaseOf(now), err
}

// putLease replaces an object of the daemon's namespace that still is at its version, or creates it
// where that is "". It returns nil without an error if another client wrote it meanwhile. The
// request is not repeated by itself: a second one would meet what the first has written.
func (c *Client) putLease(ctx context.Context, l *coordinationv1.Lease,
	within time.Duration) (*coordinationv1.Lease, error) {
	request := c.groups[coordination].Post()
	if l.ResourceVersion != "" {
		request = c.groups[coordination].Put().Name(l.Name)
	}
	now := &coordinationv1.Lease{}
	request = request.Namespace(c.options.Namespace).Resource(leaseKind.plural).
		Body(l).Timeout(within).MaxRetries(0)
	err := receiveObject(ctx, request, now, l.Name, l.UID)
	if err == nil && now.ResourceVersion == l.ResourceVersion {
		same := errors.New("the response has the version that was replaced")
		err = apierrors.NewInternalError(same)
	}
	switch {
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) ||
		apierrors.IsNotFound(err) && l.ResourceVersion != "":
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("write lease %s/%s: %w", c.options.Namespace, l.Name, err)
	}
	return now, nil
}

// leaseObject returns the object to write. Its times are for people and other programs; no daemon
// compares them with a clock.
func leaseObject(l leadership.Lease, now time.Time) *coordinationv1.Lease {
	seconds, renewed := int32(leadership.Duration/time.Second), metav1.NewMicroTime(now)
	object := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			// Without the UID the server would create a lease again that was deleted meanwhile (its
			// strategy allows that), and with it the marker that the deletion was to remove.
			Name: l.Name, ResourceVersion: l.Version, UID: types.UID(l.Term.UID),
			Labels:      map[string]string{plan.PoolLabel: l.Pool},
			Annotations: map[string]string{leaseMarker: l.Marker},
		},
		Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &renewed, LeaseTransitions: &l.Term.Number},
	}
	if l.Holder != "" {
		object.Spec.HolderIdentity = &l.Holder
	}
	if l.Term.Token != "" {
		object.Annotations[leaseTerm] = l.Term.Token
	}
	if l.Reporter {
		object.Annotations[leaseSpeaks] = "true"
	}
	return object
}

// ReadNodeLease is part of presence.API.
func (c *Client) ReadNodeLease(ctx context.Context) (*presence.Lease, error) {
	return c.readNodeLease(ctx, c.options.Node)
}

func (c *Client) readNodeLease(ctx context.Context, node string) (*presence.Lease, error) {
	there, err := leaseKind.get(publishing(ctx), c, c.options.Namespace, presence.Name(node))
	return nodeLeaseOf(there), err
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
