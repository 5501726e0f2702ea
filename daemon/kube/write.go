package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// CreateVolume creates a volume object. If an object of that name exists, it is returned, and
// nothing was changed: the caller decides whether it is the intended one.
func (c *Client) CreateVolume(ctx context.Context, pv *corev1.PersistentVolume) (existing *corev1.PersistentVolume, err error) {
	defer c.inFlight.begin()()
	_, err = volumeKind.create(ctx, c, "", pv)
	if apierrors.IsAlreadyExists(err) {
		existing, readErr := c.GetVolume(ctx, pv.Name)
		if readErr != nil || existing != nil {
			return existing, readErr
		}
		// It was deleted between the two requests: the caller retries.
	}
	return nil, about(err, "create volume %s", pv.Name)
}

// RemoveVolume removes our finalizer from a volume object and deletes the object, if it still has
// the given UID. It is no error if the object is gone.
//
// A crash between the two leaves an object without our finalizer, which the next try deletes.
func (c *Client) RemoveVolume(ctx context.Context, pv *corev1.PersistentVolume) error {
	now, err := c.ReleaseFinalizer(ctx, pv)
	if err != nil || now == nil {
		return err
	}
	return c.DeleteVolume(ctx, now)
}

// DeleteVolume deletes a volume object if it is unchanged since it was read, because a change may
// invalidate the decision (apierrors.IsConflict: the object still exists). It is no error if the
// object is gone.
func (c *Client) DeleteVolume(ctx context.Context, pv *corev1.PersistentVolume) error {
	uid := pv.UID
	unchanged := &metav1.Preconditions{UID: &uid}
	if version := pv.ResourceVersion; version != "" {
		unchanged.ResourceVersion = &version
	}
	err := volumeKind.remove(ctx, c, "", pv.Name, metav1.DeleteOptions{Preconditions: unchanged})
	if apierrors.IsConflict(err) {
		// Either another object has that name, and ours is gone; or ours was changed; or a proxy
		// responded with a conflict.
		now, readErr := c.GetVolume(ctx, pv.Name)
		switch {
		case readErr != nil:
			return fmt.Errorf("delete volume %s: after a conflict: %v", pv.Name, readErr) // it may be gone
		case now == nil || now.UID != uid || deleting(now, pv):
			return nil
		}
	}
	return err
}

// deleting reports whether an object is being deleted as was decided when it was read before: the
// deletion was done, and its response lost or the request sent twice, and pv-protection holds it
// for a moment with another version.
func deleting(now, before *corev1.PersistentVolume) bool {
	return now.DeletionTimestamp != nil && !slices.Contains(now.Finalizers, plan.Finalizer) &&
		now.Spec.PersistentVolumeReclaimPolicy == before.Spec.PersistentVolumeReclaimPolicy &&
		now.Spec.ClaimRef != nil && before.Spec.ClaimRef != nil && now.Spec.ClaimRef.UID == before.Spec.ClaimRef.UID
}

// ReleaseFinalizer removes our finalizer from a volume object, and no other. The error is a
// conflict (apierrors.IsConflict) if its reclaim policy or its claim changed since the decision, or
// if it was released and is not any more: an administrator who removes or replaces the claim of an
// object wants the data, and an API server that was restored since has the claim again. It returns
// the changed object, and nil if it is gone. An object without the finalizer is returned as given.
func (c *Client) ReleaseFinalizer(ctx context.Context, pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	for decided := pv; ; {
		at := slices.Index(pv.Finalizers, plan.Finalizer)
		if at < 0 {
			return pv, nil
		}
		now, err := volumeKind.patch(ctx, c, types.JSONPatchType, decided,
			json.RawMessage(withoutFinalizer(decided, at)))
		switch {
		case err == nil:
			return now, nil
		case absent(err, pv.Name):
			return nil, nil
		case !apierrors.IsInvalid(err) || ctx.Err() != nil:
			return nil, fmt.Errorf("take the finalizer off volume %s: %w", pv.Name, err)
		}
		// A test in the patch failed, because the object was changed, or an admission policy
		// refused the change: both are 422. The object's present state decides.
		now, readErr := c.GetVolume(ctx, pv.Name)
		if readErr != nil || now == nil || now.UID != decided.UID {
			return nil, readErr
		}
		if err := unchanged(now, decided); err != nil {
			return nil, err
		}
		if slices.Index(now.Finalizers, plan.Finalizer) == at {
			return nil, fmt.Errorf("take the finalizer off volume %s, which is unchanged: %w", pv.Name, err)
		}
		pv = now
	}
}

// HoldVolume puts our finalizer on a volume object. The error is a conflict
// (apierrors.IsConflict) if the object changed since the decision. It returns the changed object,
// and nil if it is gone. An object with the finalizer is returned as given.
func (c *Client) HoldVolume(
	ctx context.Context, pv *corev1.PersistentVolume,
) (*corev1.PersistentVolume, error) {
	if slices.Contains(pv.Finalizers, plan.Finalizer) {
		return pv, nil
	}
	now, err := volumeKind.change(ctx, c, pv, map[string]any{"metadata": asGiven(pv, map[string]any{
		"finalizers": append(slices.Clone(pv.Finalizers), plan.Finalizer),
	})})
	if absent(err, pv.Name) {
		return nil, nil
	}
	return now, about(err, "put the finalizer on volume %s", pv.Name)
}

// unchanged returns a conflict if a volume object has another policy or claim than when its removal
// was decided, or is not released any more.
func unchanged(pv, decided *corev1.PersistentVolume) error {
	resource := corev1.Resource("persistentvolumes")
	switch policy, phase := pv.Spec.PersistentVolumeReclaimPolicy, pv.Status.Phase; {
	case policy != decided.Spec.PersistentVolumeReclaimPolicy:
		return apierrors.NewConflict(resource, pv.Name, fmt.Errorf("the reclaim policy is %s now", policy))
	case claimUID(pv) != claimUID(decided):
		return apierrors.NewConflict(resource, pv.Name, errors.New("the claim is another one now"))
	case plan.Unclaimed(decided) && phase != decided.Status.Phase:
		return apierrors.NewConflict(resource, pv.Name, fmt.Errorf("it is %s now", phase))
	}
	return nil
}

func claimUID(pv *corev1.PersistentVolume) types.UID {
	if ref := pv.Spec.ClaimRef; ref != nil {
		return ref.UID
	}
	return ""
}

// withoutFinalizer returns the JSON patch that removes the entry at an index, if it is still ours
// and the object, its policy and its claim are the same, and it is still released if it was. A
// merge patch would write the whole list, and undo concurrent changes.
func withoutFinalizer(decided *corev1.PersistentVolume, at int) []byte {
	path := fmt.Sprintf("/metadata/finalizers/%d", at)
	same := ""
	if claim := claimUID(decided); claim != "" { // an object without one gets no claim while it is being deleted
		same = fmt.Sprintf(`{"op":"test","path":"/spec/claimRef/uid","value":%q},`, claim)
	}
	if plan.Unclaimed(decided) {
		same += fmt.Sprintf(`{"op":"test","path":"/status/phase","value":%q},`,
			decided.Status.Phase)
	}
	return fmt.Appendf(nil, `[{"op":"test","path":"/metadata/uid","value":%q},{"op":"test","path":"/spec/persistentVolumeReclaimPolicy","value":%q},%s`+
		`{"op":"test","path":%q,"value":%q},{"op":"remove","path":%q}]`,
		decided.UID, decided.Spec.PersistentVolumeReclaimPolicy, same, path, plan.Finalizer, path)
}

// SetSelectedNode writes the node's name on a claim; "" removes it. It does so only if the claim is
// unchanged: won is false, without an error, if the claim was changed or deleted meanwhile.
func (c *Client) SetSelectedNode(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string) (won bool, err error) {
	value := &node
	if node == "" {
		value = nil
	}
	_, err = claimKind.change(ctx, c, claim, map[string]any{"metadata": asGiven(claim, map[string]any{
		"annotations": map[string]*string{plan.SelectedNode: value},
	})})
	if gone(err) {
		return false, nil
	}
	return err == nil, about(err, "write the selected node on claim %s/%s", claim.Namespace, claim.Name)
}

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

// Contents returns an informer of the VolumeSnapshotContents of the drivers that are called
// Options.Provisioner or one of Options.Aliases. It is of objects that a cluster need not have: an
// error is not reported, and as long as the cluster has no such resource it is asked for again at
// least every longestDelay. onChange may be nil.
func (c *Client) Contents(onChange func(old, new *snapshotapi.Content)) *Informer[*snapshotapi.Content] {
	s := NewInformer(contentKind.source(c, selection{}), func(one *snapshotapi.Content) bool { return c.options.Serves(one.Spec.Driver) }, onChange)
	s.transform = leanContent
	return s
}

// leanContent is a content without the metadata that nothing reads.
func leanContent(of *snapshotapi.Content) *snapshotapi.Content {
	lean := of.DeepCopy()
	lean.ManagedFields, lean.Labels = nil, nil
	lean.Annotations = map[string]string{}
	for _, key := range []string{snapshotapi.BeingDeleted, plan.NodeLabel} {
		if value, has := of.Annotations[key]; has {
			lean.Annotations[key] = words.Name(value)
		}
	}
	return lean
}

// RunOptional runs an informer of a resource that the cluster need not have, until ctx ends.
func RunOptional[T Object](ctx context.Context, s *Informer[T]) {
	s.Run(context.WithValue(ctx, uncounted{}, true))
}

// GetContent requests a VolumeSnapshotContent. It returns nil without an error if there is none of
// the name.
func (c *Client) GetContent(ctx context.Context, name string) (*snapshotapi.Content, error) {
	return contentKind.get(ctx, c, "", name)
}

// GetSnapshot requests a VolumeSnapshot. It returns nil without an error if there is none of the
// name.
func (c *Client) GetSnapshot(ctx context.Context, namespace, name string) (*snapshotapi.Snapshot, error) {
	return snapshotKind.get(ctx, c, namespace, name)
}

// GetSnapshotClass requests a VolumeSnapshotClass. It returns nil without an error if there is none
// of the name.
func (c *Client) GetSnapshotClass(ctx context.Context, name string) (*snapshotapi.Class, error) {
	return snapshotClassKind.get(ctx, c, "", name)
}

// TakeContent writes on a content which node has its snapshot, or is to make it: from then on the
// admission policies let that node's daemon alone write to it. It returns the content as it is
// then. The error is a conflict if the content has changed.
func (c *Client) TakeContent(ctx context.Context, of *snapshotapi.Content, node string) (*snapshotapi.Content, error) {
	return c.patchContent(ctx, of, map[string]any{"metadata": map[string]any{"annotations": map[string]any{plan.NodeLabel: node}}})
}

// SetContentStatus writes what a status has over that of a content, and no error if the status has
// none. The error is a conflict if the content has changed.
func (c *Client) SetContentStatus(ctx context.Context, of *snapshotapi.Content, status snapshotapi.ContentStatus) error {
	fields, err := json.Marshal(status)
	if err != nil {
		return err
	}
	all := map[string]any{"error": nil}
	if err := json.Unmarshal(fields, &all); err != nil {
		return err
	}
	_, err = c.patchContent(ctx, of, map[string]any{"status": all}, ofStatus)
	return err
}

// ClearContentStatus removes from a content's status what a driver says of a snapshot that there
// is, and returns the content as it is then. The error is a conflict if the content has changed.
func (c *Client) ClearContentStatus(ctx context.Context, of *snapshotapi.Content) (*snapshotapi.Content, error) {
	none := map[string]any{"snapshotHandle": nil, "creationTime": nil, "restoreSize": nil, "readyToUse": nil}
	return c.patchContent(ctx, of, map[string]any{"status": none}, ofStatus)
}

// ReleaseContent takes the finalizer of the driver's side off a content that is being deleted. The
// error is a conflict if the content has changed; was is false for one that is gone.
func (c *Client) ReleaseContent(ctx context.Context, of *snapshotapi.Content) (was bool, err error) {
	left := slices.DeleteFunc(slices.Clone(of.Finalizers), func(f string) bool { return f == snapshotapi.Finalizer })
	_, err = c.patchContent(ctx, of, map[string]any{"metadata": map[string]any{"finalizers": left}})
	if absent(err, of.Name) {
		return false, nil
	}
	return err == nil, err
}

// patchContent sends a merge patch that the server refuses if the content is not as given any more.
func (c *Client) patchContent(ctx context.Context, of *snapshotapi.Content, change map[string]any,
	how ...option) (*snapshotapi.Content, error) {
	metadata, _ := change["metadata"].(map[string]any)
	change["metadata"] = asGiven(of, metadata)
	now, err := contentKind.change(ctx, c, of, change, how...)
	return now, about(err, "write VolumeSnapshotContent %s", of.Name)
}
