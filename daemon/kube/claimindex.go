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
)

// HasClaimPolicy reports whether the cluster has an object of the claim policy's name. There is
// none for who may not read it, nor in a server before Kubernetes 1.36.
func (c *Client) HasClaimPolicy(ctx context.Context) (bool, error) {
	err := c.groups[admission].Get().Resource(indexKind.plural).Name(claimindex.Name).
		SetHeader("Accept", metadataOnly("PartialObjectMetadata")).
		Timeout(callTimeout).Do(publishing(ctx)).Into(&metav1.PartialObjectMetadata{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read the policy %s: %w", claimindex.Name, err)
	}
	return true, nil
}

// WatchClaimIndex calls seen with the identity of the claim policy and its binding
// (claimindex.Identity) once both were read, and with each change, until ctx ends.
func (c *Client) WatchClaimIndex(ctx context.Context, seen func(identity string)) {
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	policies := NewInformer(indexKind.source(c, ofClaimIndex), nil,
		func(_, _ *admissionv1.MutatingAdmissionPolicy) { notify() }).WatchList()
	bindings := NewInformer(indexBindingKind.source(c, ofClaimIndex), nil,
		func(_, _ *admissionv1.MutatingAdmissionPolicyBinding) { notify() }).WatchList()
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
		seen(claimindex.Identity(policy, binding))
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
