package kube

import (
	"context"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
)

// The requests of this file are an administrator's: no daemon has the rights for all of them.

// EachClaim reads all claims of the cluster, a page at a time.
func (c *Client) EachClaim(ctx context.Context, visit func(*corev1.PersistentVolumeClaim)) error {
	return claimKind.each(ctx, c, selection{}, visit)
}

// EachContent reads all VolumeSnapshotContents of the cluster, a page at a time. A cluster without
// that resource has none.
func (c *Client) EachContent(ctx context.Context, visit func(*snapshotapi.Content)) error {
	return ignoreMissing(contentKind.each(ctx, c, selection{}, visit))
}

// EachLease reads the Leases in the daemons' namespace, a page at a time.
func (c *Client) EachLease(ctx context.Context, visit func(*coordinationv1.Lease)) error {
	return leaseKind.each(ctx, c, selection{namespace: c.options.Namespace}, visit)
}

// EachCapacity reads what a node publishes for these drivers, by the node's label value, or what
// all do where that is "".
func (c *Client) EachCapacity(ctx context.Context, drivers []string, node string,
	visit func(*storagev1.CSIStorageCapacity)) error {
	labels := managerLabel + "=" + component + "," +
		driverLabel + " in (" + strings.Join(drivers, ",") + ")"
	if node != "" {
		labels += "," + plan.NodeLabel + "=" + node
	}
	return capacityKind.each(ctx, c, selection{namespace: c.options.Namespace, labels: labels}, visit)
}

// MarkClaim writes an annotation and the list of finalizers of a claim, if it is as given, and
// returns it as it is then: a conflict otherwise.
func (c *Client) MarkClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim,
	key string, value *string, finalizers []string) (*corev1.PersistentVolumeClaim, error) {
	now, err := claimKind.change(ctx, c, claim, map[string]any{"metadata": asGiven(claim, map[string]any{
		"annotations": map[string]*string{key: value}, "finalizers": finalizers,
	})})
	return now, about(err, "mark claim %s/%s", claim.Namespace, claim.Name)
}

// CreateClaim makes a claim. One that has the name already is left as it is: a conflict.
func (c *Client) CreateClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	_, err := claimKind.create(ctx, c, claim.Namespace, claim)
	return about(err, "create claim %s/%s", claim.Namespace, claim.Name)
}

// DeleteClaim deletes a claim, if it has the UID. It is no error if it is gone.
func (c *Client) DeleteClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	return claimKind.removeThis(ctx, c, claim, nil)
}

// DeletePod deletes a pod at once, if it has the UID, whether or not a kubelet is there to stop it.
// It is no error if it is gone.
func (c *Client) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	return podKind.removeThis(ctx, c, pod, new(int64))
}

// DeleteContent deletes a VolumeSnapshotContent, if it has the UID. It is no error if it is gone.
func (c *Client) DeleteContent(ctx context.Context, of *snapshotapi.Content) error {
	return contentKind.removeThis(ctx, c, of, nil)
}
