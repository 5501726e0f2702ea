// Package unpublish takes a volume's object out of the API, where no daemon will do it: one that
// another object is to replace, or one whose node is gone.
//
// It does not touch data or a record, and it decides nothing: the caller has found that no pod of
// a living node needs the object. It takes off no finalizer but Kubernetes' own and a
// provisioner's.
package unpublish

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// API is the part of Kubernetes that is used.
type API interface {
	// GetVolume returns nil without an error for a volume that does not exist.
	GetVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
	// DeleteVolume deletes an object only if it is as given; a conflict otherwise.
	DeleteVolume(ctx context.Context, pv *corev1.PersistentVolume) error
	// PatchVolume changes an object only if it is as given; a conflict otherwise.
	PatchVolume(ctx context.Context, pv *corev1.PersistentVolume,
		m plan.MetadataPatch) (*corev1.PersistentVolume, error)
}

// Claims reads claims. One that does not exist is nil without an error.
type Claims interface {
	GetClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
}

// Again does once more what met a conflict, some times while others write to the object: it reads
// that anew.
func Again(ctx context.Context, do func() error) (err error) {
	for range 5 {
		if err = do(); !apierrors.IsConflict(err) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// Claim is the claim that a volume is bound to, by the UID in its claimRef, nil if there is none.
func Claim(ctx context.Context, api Claims,
	ref *corev1.ObjectReference) (*corev1.PersistentVolumeClaim, error) {
	if ref == nil {
		return nil, nil
	}
	claim, err := api.GetClaim(ctx, ref.Namespace, ref.Name)
	if err != nil || claim == nil || claim.UID != ref.UID {
		return nil, err
	}
	return claim, nil
}

// Volume deletes an object, if it was not changed since it was read, and takes off the finalizers
// that would keep it: Kubernetes' own as long as its claim is bound, a provisioner's for ever. They
// come off after the deletion, because Kubernetes puts its own on again before. A nil object is one
// that is gone.
//
// A crash in between leaves an object that is being deleted, which the next call lets go.
func Volume(ctx context.Context, api API, seen *corev1.PersistentVolume) error {
	if seen == nil {
		return nil
	}
	if seen.DeletionTimestamp == nil {
		if err := api.DeleteVolume(ctx, seen); err != nil {
			return err
		}
	}
	now, err := api.GetVolume(ctx, seen.Name)
	switch {
	case err != nil, now == nil:
		return err
	case now.UID != seen.UID || now.DeletionTimestamp == nil:
		return apierrors.NewConflict(corev1.Resource("persistentvolumes"), seen.Name,
			errors.New("it is another object now"))
	}
	if other := plan.OthersFinalizer(now); other != "" {
		return fmt.Errorf("it has the finalizer %q by now: its owner has to take it off first",
			other)
	}
	_, err = api.PatchVolume(ctx, now, plan.MetadataPatch{Labels: map[string]*string{},
		Annotations: map[string]*string{}, Finalizers: []string{}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
