package kube

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

// HasClaimPolicy reports whether the cluster has an object of the claim policy's name. There is
// none for who may not read it, nor in a server before Kubernetes 1.36.
func (c *Client) HasClaimPolicy(ctx context.Context) (bool, error) {
	request := indexKind.at(c.groups[admission].Get(), "").
		SetHeader("Accept", metadataOnly("PartialObjectMetadata"))
	has, err := readInto(publishing(ctx), request, &metav1.PartialObjectMetadata{}, claimindex.Name)
	if none(err) {
		return false, nil
	}
	return has, about(err, "read the policy %s", claimindex.Name)
}

// WatchClaimIndex calls seen with the identity of the claim policy and its binding
// (claimindex.Index.Identity) once both were read, and with each change, until ctx ends.
func (c *Client) WatchClaimIndex(ctx context.Context, seen func(identity string)) {
	changed := make(chan struct{}, 1)
	policies := NewInformer(indexKind.source(c, ofClaimIndex), nil,
		func(_, _ *admissionv1.MutatingAdmissionPolicy) { wake.Signal(changed) }).WatchList()
	bindings := NewInformer(indexBindingKind.source(c, ofClaimIndex), nil,
		func(_, _ *admissionv1.MutatingAdmissionPolicyBinding) { wake.Signal(changed) }).WatchList()
	go RunOptional(ctx, policies)
	go RunOptional(ctx, bindings)
	for _, synced := range []<-chan struct{}{policies.Synced(), bindings.Synced()} {
		select {
		case <-synced:
		case <-ctx.Done():
			return
		}
	}
	for {
		policy, _ := policies.Get(claimindex.Name)
		binding, _ := bindings.Get(claimindex.Name)
		seen(claimindex.Claims.Identity(policy, binding))
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// ofClaimIndex is the one object of a kind that has the claim policy's name. Errors of its informers
// are not reported: without it the daemon reads all claims.
var ofClaimIndex = selection{fields: "metadata.name=" + claimindex.Name}

// examples is how many claims are tried: one of them is probably still there.
const examples = 8

// TryClaimPolicy reports whether the API server labels claims, of which it reads a few. It is false
// where there is none.
func (c *Client) TryClaimPolicy(ctx context.Context) (labels bool, err error) {
	labels, _, err = c.triesLabels(ctx)
	return labels, err
}

// AuditMost is how many claims one audit labels.
const AuditMost = 10000

// AuditClaims reads all claims of the cluster, a page at a time, and labels those that the
// selection misses: they are from before the policy. whole reports that no claim is missed any
// more, and that the API server labels claims. It is false where there is no claim to see that by.
// labelled is how many were missed, also with an error.
func (c *Client) AuditClaims(ctx context.Context, selection claimindex.Selection) (whole bool, labelled int, err error) {
	var waiting, some, missed []*corev1.PersistentVolumeClaim
	err = c.EachClaim(ctx, func(claim *corev1.PersistentVolumeClaim) {
		switch {
		case claim.Spec.VolumeName == "" && len(waiting) < examples:
			waiting = append(waiting, plan.LeanClaim(claim))
		case len(some) < examples:
			some = append(some, plan.LeanClaim(claim))
		}
		if len(missed) < AuditMost && selection.Misses(claim) {
			missed = append(missed, plan.LeanClaim(claim))
		}
	})
	if err != nil {
		return false, 0, err
	}
	if whole, err = c.labelsClaims(ctx, append(waiting, some...)); err != nil || !whole {
		return false, 0, err
	}
	if whole, err = c.labelMissed(ctx, selection, missed); err == nil && !whole {
		return false, 0, nil
	}
	return whole && len(missed) < AuditMost, len(missed), err
}

// labelMissed labels claims. It reports whether they have their label then: another program of the
// cluster may take it away.
func (c *Client) labelMissed(ctx context.Context, selection claimindex.Selection, missed []*corev1.PersistentVolumeClaim) (whole bool, err error) {
	for _, claim := range missed {
		value, _ := claimindex.Value(claim)
		now, err := c.labelClaim(ctx, claim, value)
		switch {
		case gone(err):
		case err != nil:
			return false, fmt.Errorf("label claim %s/%s: %w", claim.Namespace, claim.Name, err)
		case selection.Misses(now):
			return false, nil
		}
	}
	return true, nil
}

// gone reports whether an error says that a claim does not exist any more, or is another one now.
func gone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// labelsClaims reports whether the API server writes the policy's value over another one, in a
// request that changes nothing. Some of the claims may be gone. The first that is there decides:
// one without a volume, if there is one, because from those with a volume another program may have
// taken the label.
func (c *Client) labelsClaims(ctx context.Context, of []*corev1.PersistentVolumeClaim) (bool, error) {
	const forged = "forged"
	for _, claim := range of {
		now, err := c.labelClaim(ctx, claim, forged, dryRun)
		switch {
		case gone(err):
			continue
		case err != nil:
			return false, fmt.Errorf("try to label claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
		return claimindex.Written(now), nil
	}
	return false, nil // nothing to try it with
}

func (c *Client) labelClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, value string,
	how ...option) (*corev1.PersistentVolumeClaim, error) {
	return claimKind.change(ctx, c, claim, labelChange(claim.UID, claimindex.Label, value), how...)
}

// VolumeIndex returns the identity of the policy that labels kept volumes, and of its binding
// (claimindex.Index.Identity), as they are at the time of the call or later. It is "" where there
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
	return claimindex.Volumes.Identity(policy, binding), err
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
