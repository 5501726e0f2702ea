package kube

import (
	"context"
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
)

// The requests of this file are an administrator's: no daemon has the rights for all of them.

// EachClaim reads all claims of the cluster, a page at a time.
func (c *Client) EachClaim(ctx context.Context, visit func(*corev1.PersistentVolumeClaim)) error {
	return each(ctx, c.source(c.core, "persistentvolumeclaims", func() runtime.Object {
		return &corev1.PersistentVolumeClaimList{}
	}), visit)
}

// EachContent reads all VolumeSnapshotContents of the cluster, a page at a time. A cluster without
// that resource has none.
func (c *Client) EachContent(ctx context.Context, visit func(*snapshotapi.Content)) error {
	err := each(ctx, c.allContents(), visit)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (c *Client) allContents() *source {
	return c.source(c.snapshots, contents,
		func() runtime.Object { return &snapshotapi.ContentList{} })
}

// EachLease reads the Leases in the daemons' namespace, a page at a time.
func (c *Client) EachLease(ctx context.Context, visit func(*coordinationv1.Lease)) error {
	return each(ctx, c.allLeases(), visit)
}

func (c *Client) allLeases() *source {
	source := c.source(c.coordination, "leases",
		func() runtime.Object { return &coordinationv1.LeaseList{} })
	source.namespace = c.options.Namespace
	return source
}

// EachCapacity reads what a node publishes for these drivers, by the node's label value, or what
// all do where that is "".
func (c *Client) EachCapacity(ctx context.Context, drivers []string, node string,
	visit func(*storagev1.CSIStorageCapacity)) error {
	source := c.source(c.storage, "csistoragecapacities", func() runtime.Object {
		return &storagev1.CSIStorageCapacityList{}
	})
	source.namespace = c.options.Namespace
	source.labels = managerLabel + "=" + component + "," +
		driverLabel + " in (" + strings.Join(drivers, ",") + ")"
	if node != "" {
		source.labels += "," + plan.NodeLabel + "=" + node
	}
	return each(ctx, source, visit)
}

// MarkClaim writes an annotation and the list of finalizers of a claim, if it is as given, and
// returns it as it is then: a conflict otherwise.
func (c *Client) MarkClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim,
	key string, value *string, finalizers []string) (*corev1.PersistentVolumeClaim, error) {
	request := c.claimPatch(types.MergePatchType, claim.Namespace)
	now, err := patch[corev1.PersistentVolumeClaim](ctx, request, claim.Name, claim.UID, map[string]any{
		"metadata": asGiven(claim, map[string]any{
			"annotations": map[string]*string{key: value}, "finalizers": finalizers,
		})})
	if err != nil {
		return nil, fmt.Errorf("mark claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return now, nil
}

// CreateClaim makes a claim. One that has the name already is left as it is: a conflict.
func (c *Client) CreateClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	request := c.core.Post().Namespace(claim.Namespace).Resource("persistentvolumeclaims").
		Body(claim).Timeout(callTimeout)
	made := &corev1.PersistentVolumeClaim{}
	if err := receiveObject(ctx, request, made, claim.Name, ""); err != nil {
		return fmt.Errorf("create claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// DeleteClaim deletes a claim, if it has the UID. It is no error if it is gone.
func (c *Client) DeleteClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	err := removeObject(ctx, c.core.Delete().Namespace(claim.Namespace).
		Resource("persistentvolumeclaims"), claim.Name, claim.UID, nil)
	if err != nil {
		return fmt.Errorf("delete claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// DeletePod deletes a pod at once, if it has the UID, whether or not a kubelet is there to stop it.
// It is no error if it is gone.
func (c *Client) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	at := int64(0)
	err := removeObject(ctx, c.core.Delete().Namespace(pod.Namespace).Resource("pods"),
		pod.Name, pod.UID, &at)
	if err != nil {
		return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// DeleteContent deletes a VolumeSnapshotContent, if it has the UID. It is no error if it is gone.
func (c *Client) DeleteContent(ctx context.Context, of *snapshotapi.Content) error {
	err := removeObject(ctx, c.snapshots.Delete().Resource(contents), of.Name, of.UID, nil)
	if err != nil {
		return fmt.Errorf("delete VolumeSnapshotContent %s: %w", of.Name, err)
	}
	return nil
}

// removeObject deletes the object of a name, if it has the UID. One that is gone, or another one
// by now, is no error.
func removeObject(ctx context.Context, request *rest.Request, name string, uid types.UID,
	grace *int64) error {
	err := receiveDeletion(ctx, request.Name(name).Body(&metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid}, GracePeriodSeconds: grace,
	}).Timeout(callTimeout), name, uid)
	if absent(err, name) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
