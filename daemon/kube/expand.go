package kube

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
)

// PatchClaimStatus changes the status of a claim that still is as given: a concurrent change is not
// overwritten, and is an error (a conflict). It returns the changed claim.
func (c *Client) PatchClaimStatus(ctx context.Context, claim *corev1.PersistentVolumeClaim, s plan.ClaimStatus) (*corev1.PersistentVolumeClaim, error) {
	patch, err := statusPatch(claim, s)
	if err != nil {
		return nil, err
	}
	now := &corev1.PersistentVolumeClaim{}
	request := c.core.Patch(types.StrategicMergePatchType).Namespace(claim.Namespace).
		Resource("persistentvolumeclaims").
		Name(claim.Name).SubResource("status").Body(patch).Timeout(callTimeout)
	if err := receiveObject(ctx, request, now, claim.Name, claim.UID); err != nil {
		return nil, fmt.Errorf("write the status of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return now, nil
}

// statusPatch names conditions by their type (patchMergeKey), so that those of other controllers
// stay. The server takes annotations with a status (pkg/registry/core/persistentvolumeclaim,
// persistentvolumeclaimStatusStrategy).
func statusPatch(claim *corev1.PersistentVolumeClaim, s plan.ClaimStatus) ([]byte, error) {
	meta := map[string]any{"uid": claim.UID, "resourceVersion": claim.ResourceVersion}
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
	return json.Marshal(map[string]any{"metadata": meta, "status": status})
}

func storageIs(value any) map[corev1.ResourceName]any {
	return map[corev1.ResourceName]any{corev1.ResourceStorage: value}
}

// SetCapacity writes the size of a volume object that still is as given. A concurrent change is an
// error (a conflict).
func (c *Client) SetCapacity(ctx context.Context, pv *corev1.PersistentVolume, size resource.Quantity) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pv.UID, "resourceVersion": pv.ResourceVersion},
		"spec":     map[string]any{"capacity": storageIs(size)},
	})
	if err != nil {
		return err
	}
	if _, err := c.patchVolume(ctx, pv, types.MergePatchType, patch); err != nil {
		return fmt.Errorf("write the capacity of volume %s: %w", pv.Name, err)
	}
	return nil
}
