package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
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
