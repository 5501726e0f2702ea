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
)

// GetClaim requests a claim from the API server. It returns nil without an error if the claim does
// not exist.
func (c *Client) GetClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return claimKind.get(ctx, c, namespace, name)
}

// GetVolume requests a volume from the API server. It returns nil without an error if the volume
// does not exist.
func (c *Client) GetVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return volumeKind.get(ctx, c, "", name)
}

// GetDriver requests a CSIDriver from the API server. It returns nil without an error if there is
// none of the name.
func (c *Client) GetDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	return driverKind.get(ctx, c, "", name)
}

// ClassProvisioner requests a StorageClass from the API server and returns its provisioner, "" if
// the class does not exist.
func (c *Client) ClassProvisioner(ctx context.Context, name string) (string, error) {
	class, err := classKind.get(ctx, c, "", name)
	if class == nil {
		return "", err
	}
	return class.Provisioner, nil
}

// ClusterID returns the UID of the namespace kube-system. Every cluster has it from its first start
// on, and a restore of etcd keeps it. It returns "" without an error if the kubeconfig may not read
// that namespace: a kubeconfig of rights of one's own may lack it.
func (c *Client) ClusterID(ctx context.Context) (string, error) {
	namespace, err := namespaceKind.get(ctx, c, "", metav1.NamespaceSystem)
	switch {
	case apierrors.IsForbidden(err):
		return "", nil
	case namespace == nil:
		return "", err
	}
	return string(namespace.UID), nil
}

// absent reports whether an error is the API server's response that no object has this name. A 404
// of something in between, a load balancer without a server behind it, say, names no object, or is
// an unexpected response to client-go, which puts the name in itself (apimachinery, pkg/api/errors,
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
	request := c.groups[core].Get().Resource(nodeKind.plural).
		SetHeader("Accept", metadataOnly("PartialObjectMetadata"))
	exists, err := readInto(ctx, request, &metav1.PartialObjectMetadata{}, name)
	return exists, about(err, "read node %s", name)
}

// metadataOnly returns the Accept header with which the server leaves out spec and status.
func metadataOnly(kind string) string {
	as := ";as=" + kind + ";g=meta.k8s.io;v=v1"
	return runtime.ContentTypeProtobuf + as + "," + runtime.ContentTypeJSON + as
}

// NodeCount returns how many Nodes the cluster has, by the server's estimate: the server sends one,
// without spec and status, and the number of the remaining ones.
func (c *Client) NodeCount(ctx context.Context) (int, error) {
	page, err := c.nodesPage(ctx, metav1.ListOptions{Limit: 1})
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

// nodesPage reads a page of nodes without spec and status.
func (c *Client) nodesPage(ctx context.Context, of metav1.ListOptions) (
	*metav1.PartialObjectMetadataList, error) {
	page := &metav1.PartialObjectMetadataList{}
	return page, receiveList(ctx, c.groups[core].Get().Resource(nodeKind.plural).
		SetHeader("Accept", metadataOnly("PartialObjectMetadataList")).
		VersionedParams(&of, c.params).Timeout(callTimeout), page)
}
