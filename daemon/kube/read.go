package kube

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/words"
)

// GetClaim requests a claim from the API server. It returns nil without an error if the claim does not exist.
func (c *Client) GetClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	err := c.core.Get().Namespace(namespace).Resource("persistentvolumeclaims").Name(name).
		Timeout(callTimeout).Do(ctx).Into(claim)
	switch {
	case absent(err, name):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read claim %s/%s: %w", namespace, name, err)
	}
	return claim, nil
}

// GetVolume requests a volume from the API server. It returns nil without an error if the volume does not exist.
func (c *Client) GetVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	pv := &corev1.PersistentVolume{}
	err := c.core.Get().Resource("persistentvolumes").Name(name).Timeout(callTimeout).Do(ctx).Into(pv)
	switch {
	case absent(err, name):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read volume %s: %w", name, err)
	}
	return pv, nil
}

// ClassProvisioner requests a StorageClass from the API server and returns its provisioner, "" if the class does not exist.
func (c *Client) ClassProvisioner(ctx context.Context, name string) (string, error) {
	class := &storagev1.StorageClass{}
	err := c.storage.Get().Resource("storageclasses").Name(name).Timeout(callTimeout).Do(ctx).Into(class)
	switch {
	case absent(err, name):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read class %s: %w", words.Quoted(name), err)
	}
	return class.Provisioner, nil
}

// ClusterID returns the UID of the namespace kube-system. Every cluster has it from its first start on, and a
// restore of etcd keeps it. It returns "" without an error if the kubeconfig may not read that namespace: the
// manifests of earlier versions did not grant it.
func (c *Client) ClusterID(ctx context.Context) (string, error) {
	namespace := &corev1.Namespace{}
	err := c.core.Get().Resource("namespaces").Name(metav1.NamespaceSystem).Timeout(callTimeout).Do(ctx).Into(namespace)
	switch {
	case apierrors.IsForbidden(err), absent(err, metav1.NamespaceSystem):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return string(namespace.UID), nil
}

// absent reports whether an error is the API server's response that no object has this name. A 404 of
// something in between, a load balancer without a server behind it, say, names no object, or is an
// unexpected response to client-go, which puts the name in itself (apimachinery, pkg/api/errors,
// NewNotFound and NewGenericServerResponse).
func absent(err error, name string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name == name
}

// NodeExists requests a Node from the API server and reports whether it exists.
func (c *Client) NodeExists(ctx context.Context, name string) (bool, error) {
	node := &metav1.PartialObjectMetadata{}
	err := c.core.Get().Resource("nodes").Name(name).SetHeader("Accept", metadataOnly("PartialObjectMetadata")).
		Timeout(callTimeout).Do(ctx).Into(node)
	switch {
	case absent(err, name):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read node %s: %w", name, err)
	}
	return true, nil
}

// metadataOnly returns the Accept header with which the server leaves out spec and status.
func metadataOnly(kind string) string {
	as := ";as=" + kind + ";g=meta.k8s.io;v=v1"
	return runtime.ContentTypeProtobuf + as + "," + runtime.ContentTypeJSON + as
}

// NodeCount returns how many Nodes the cluster has, by the server's estimate: the server sends one, without spec
// and status, and the number of the remaining ones.
func (c *Client) NodeCount(ctx context.Context) (int, error) {
	page := &metav1.PartialObjectMetadataList{}
	err := c.core.Get().Resource("nodes").
		SetHeader("Accept", metadataOnly("PartialObjectMetadataList")).
		VersionedParams(&metav1.ListOptions{Limit: 1}, c.params).
		Timeout(callTimeout).Do(ctx).Into(page)
	if err != nil {
		return 0, fmt.Errorf("count the nodes: %w", err)
	}
	count := len(page.Items)
	switch {
	case page.RemainingItemCount != nil:
		count += int(*page.RemainingItemCount)
	case page.Continue != "":
		count++ // at least
	}
	return count, nil
}
