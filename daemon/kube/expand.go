package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// PatchClaimStatus changes the status of a claim that still is as given: a concurrent change is not
// overwritten, and is an error (a conflict). It returns the changed claim.
func (c *Client) PatchClaimStatus(ctx context.Context, claim *corev1.PersistentVolumeClaim, s plan.ClaimStatus) (*corev1.PersistentVolumeClaim, error) {
	now, err := claimKind.patch(ctx, c, types.StrategicMergePatchType, claim, statusChange(claim, s), ofStatus)
	return now, about(err, "write the status of claim %s/%s", claim.Namespace, claim.Name)
}

// statusChange names conditions by their type (patchMergeKey), so that those of other controllers
// stay. The server takes annotations with a status (pkg/registry/core/persistentvolumeclaim,
// persistentvolumeclaimStatusStrategy).
func statusChange(claim *corev1.PersistentVolumeClaim, s plan.ClaimStatus) map[string]any {
	meta := asGiven(claim, nil)
	if s.Resizer != "" {
		meta["annotations"] = map[string]string{plan.StorageResizer: s.Resizer}
	}
	conditions := []any{}
	for _, set := range s.Set {
		conditions = append(conditions, set)
	}
	for _, kind := range s.Remove {
		conditions = append(conditions, map[string]any{"$patch": "delete", "type": kind})
	}
	status := map[string]any{"conditions": conditions, "allocatedResourceStatuses": storageIs(nil)}
	if s.State != "" {
		status["allocatedResourceStatuses"] = storageIs(s.State)
	}
	if s.Allocated != nil {
		status["allocatedResources"] = storageIs(s.Allocated)
	}
	if s.Capacity != nil {
		status["capacity"] = storageIs(s.Capacity)
	}
	return map[string]any{"metadata": meta, "status": status}
}

func storageIs(value any) map[corev1.ResourceName]any {
	return map[corev1.ResourceName]any{corev1.ResourceStorage: value}
}

// SetCapacity writes the size of a volume object that still is as given. A concurrent change is an
// error (a conflict).
func (c *Client) SetCapacity(ctx context.Context, pv *corev1.PersistentVolume, size resource.Quantity) error {
	_, err := volumeKind.change(ctx, c, pv, map[string]any{
		"metadata": asGiven(pv, nil), "spec": map[string]any{"capacity": storageIs(size)}})
	return about(err, "write the capacity of volume %s", pv.Name)
}
