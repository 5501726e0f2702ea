package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
)

// VolumeIndex returns the identity of the policy that labels kept volumes, and of its binding
// (claimindex.VolumesIdentity), as they are at the time of the call or later. It is "" where there
// is none that this version knows, or where this daemon may not read it.
func (c *Client) VolumeIndex(ctx context.Context) (identity string, err error) {
	policy, err := indexKind.get(publishing(ctx), c, "", claimindex.VolumesName)
	if none(err) || err == nil && policy == nil {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	binding, err := indexBindingKind.get(publishing(ctx), c, "", claimindex.VolumesName)
	if none(err) {
		return "", nil
	}
	return claimindex.VolumesIdentity(policy, binding), err
}

// none reports whether an error is that of a server that does not know a resource, or of a
// kubeconfig that may not read it.
func none(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// EachKept reads the volume objects that the policy has labelled as kept for claims of these names,
// in whichever namespace, as they are at the time of the call or later. Some may be kept for other
// claims.
func (c *Client) EachKept(ctx context.Context, claims []string, visit func(*corev1.PersistentVolume)) error {
	return volumeKind.each(ctx, c, selection{labels: claimindex.VolumeSelector(claims)}, visit)
}

// EachMissed reads all volume objects of the cluster, and calls visit with those that are kept and
// that the policy has not labelled.
func (c *Client) EachMissed(ctx context.Context, visit func(*corev1.PersistentVolume)) error {
	return c.EachVolume(ctx, func(v *corev1.PersistentVolume) {
		if claimindex.VolumeMissed(v) {
			visit(v)
		}
	})
}

// TryVolumeIndex reports whether the API server writes the policy's label over another one on a
// volume of this daemon's, in a request that changes nothing. It is false if the volume does not
// exist any more.
func (c *Client) TryVolumeIndex(ctx context.Context, pv *corev1.PersistentVolume) (labels bool, err error) {
	const forged = "Forged"
	now, err := volumeKind.change(ctx, c, pv,
		labelChange(pv.UID, claimindex.VolumeLabel, forged), dryRun)
	switch {
	case gone(err), apierrors.IsInvalid(err): // another one of its name has another UID
		return false, nil
	case apierrors.IsForbidden(err): // the policies of an identity let no label of a volume change
		return false, nil
	case err != nil:
		return false, fmt.Errorf("try to label volume %s: %w", pv.Name, err)
	}
	return claimindex.VolumeWritten(now), nil
}
