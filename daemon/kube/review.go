package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/clustercheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// Server returns the API server's address, as the kubeconfig has it.
func (c *Client) Server() string { return c.connection.host }

// ServerVersion returns the API server's version, v1.36.0 for example. A server that does not
// accept the credential returns none.
func (c *Client) ServerVersion(ctx context.Context) (string, error) {
	response, err := c.groups[core].Get().AbsPath("/version").SetHeader("Accept", "application/json").Timeout(callTimeout).Do(ctx).Raw()
	var is version.Info
	if err == nil {
		err = json.Unmarshal(response, &is)
	}
	if err != nil {
		return "", fmt.Errorf("read the version of the API server: %w", err)
	}
	return is.GitVersion, nil
}

// User is the client's identity as the API server sees it. Node and NodeUID are those of the Node
// that a token is bound to.
type User struct{ Name, Node, NodeUID string }

// Whoami requests the client's identity (SelfSubjectReview, Kubernetes 1.28).
func (c *Client) Whoami(ctx context.Context) (User, error) {
	review := &authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"}}
	path := "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	if err := post(ctx, c.groups[core].Post().AbsPath(path), review); err != nil {
		return User{}, fmt.Errorf("review this identity: %w", err)
	}
	is := review.Status.UserInfo
	extra := func(key string) string { return strings.Join(is.Extra["authentication.kubernetes.io/"+key], ",") }
	return User{Name: is.Username, Node: extra("node-name"), NodeUID: extra("node-uid")}, nil
}

// post sends an object of a group that the client has no codec for, and reads the response into it.
func post(ctx context.Context, r *rest.Request, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	result := r.SetHeader("Content-Type", "application/json").
		SetHeader("Accept", "application/json").Body(body).Timeout(callTimeout).Do(ctx)
	if err := result.Error(); err != nil {
		return err // the server's own words, which Raw replaces by "unknown"
	}
	response, err := result.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(response, object)
}

// Access is one verb on a resource.
type Access struct{ Group, Resource, Subresource, Name, Namespace, Verb string }

// String is the access as kubectl auth can-i has it.
func (a Access) String() string {
	text := a.Verb + " " + a.Resource
	if a.Group != "" {
		text += "." + a.Group
	}
	if a.Subresource != "" {
		text += "/" + a.Subresource
	}
	if a.Name != "" {
		text += " " + a.Name
	}
	return text
}

// Lacks returns those that the client's identity has no right to, as the API server itself says
// (SelfSubjectAccessReview).
func (c *Client) Lacks(ctx context.Context, all []Access) (lacks []Access, err error) {
	for _, a := range all {
		review := &authorizationv1.SelfSubjectAccessReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"},
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: a.Group, Resource: a.Resource, Subresource: a.Subresource, Name: a.Name, Namespace: a.Namespace, Verb: a.Verb,
			}},
		}
		path := "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
		if err := post(ctx, c.groups[core].Post().AbsPath(path), review); err != nil {
			return nil, fmt.Errorf("review the rights of this identity: %w", err)
		}
		if !review.Status.Allowed {
			lacks = append(lacks, a)
		}
	}
	return lacks, nil
}

// Confined reports whether the cluster's policies refuse this identity a volume that no daemon
// makes. Nothing is created.
func (c *Client) Confined(ctx context.Context) (bool, error) {
	err := c.CheckVolume(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "hostpath-provisioner-confined", Annotations: map[string]string{plan.ProvisionedBy: "none"}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/hostpath-provisioner-confined"}},
		},
	})
	if err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
		return true, nil
	}
	return false, err
}

// Policy requests a ValidatingAdmissionPolicy. It returns nil without an error if there is none, as
// in a server before Kubernetes 1.30.
func (c *Client) Policy(ctx context.Context, name string) (*admissionv1.ValidatingAdmissionPolicy, error) {
	policy, err := policyKind.get(ctx, c, "", name)
	return policy, ignoreMissing(err)
}

// PolicyBinding requests the binding of a policy, as Policy does.
func (c *Client) PolicyBinding(ctx context.Context, name string) (*admissionv1.ValidatingAdmissionPolicyBinding, error) {
	binding, err := policyBindingKind.get(ctx, c, "", name)
	return binding, ignoreMissing(err)
}

// ignoreMissing drops the error of a resource that the server does not have.
func ignoreMissing(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// ClassesOf returns the names of the StorageClasses of these provisioners.
func (c *Client) ClassesOf(ctx context.Context, provisioners []string) (names []string, err error) {
	err = classKind.each(ctx, c, selection{}, func(class *storagev1.StorageClass) {
		if slices.Contains(provisioners, class.Provisioner) {
			names = append(names, class.Name)
		}
	})
	return names, err
}

// ClaimIndex returns what the cluster has of the claim index. Nothing is changed.
func (c *Client) ClaimIndex(ctx context.Context) (is clustercheck.Index, err error) {
	policy, err := indexKind.get(ctx, c, "", claimindex.Name)
	if err := ignoreMissing(err); err != nil {
		return is, err
	}
	var binding *admissionv1.MutatingAdmissionPolicyBinding
	err = indexBindingKind.each(ctx, c, ofClaimIndex,
		func(b *admissionv1.MutatingAdmissionPolicyBinding) { binding = b })
	if is.Unserved = apierrors.IsNotFound(err); is.Unserved {
		return is, nil
	}
	if err != nil {
		return is, err
	}
	is.Policy, is.Binding = policy != nil, binding != nil
	is.Same = claimindex.Claims.Identity(policy, binding) != ""
	if is.Policy && is.Binding {
		if is.Labels, is.Tried, err = c.triesLabels(ctx); err != nil {
			return is, err
		}
	}
	volumes, err := c.VolumeIndex(ctx)
	is.Volumes = volumes != ""
	return is, err
}

// triesLabels reports whether the API server labels some claims of the cluster; tried is false if
// there are none.
func (c *Client) triesLabels(ctx context.Context) (labels, tried bool, err error) {
	page := &corev1.PersistentVolumeClaimList{}
	request := c.groups[core].Get().Resource(claimKind.plural).
		VersionedParams(&metav1.ListOptions{Limit: examples}, c.params).Timeout(callTimeout)
	if err := receiveList(ctx, request, page); err != nil {
		return false, false, fmt.Errorf("list some claims: %w", err)
	}
	some := make([]*corev1.PersistentVolumeClaim, 0, len(page.Items))
	for i := range page.Items {
		some = append(some, &page.Items[i])
	}
	slices.SortStableFunc(some, func(a, b *corev1.PersistentVolumeClaim) int {
		return min(len(a.Spec.VolumeName), 1) - min(len(b.Spec.VolumeName), 1)
	})
	labels, err = c.labelsClaims(ctx, some)
	return labels, len(some) > 0, err
}
