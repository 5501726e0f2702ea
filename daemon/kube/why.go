package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/storagecapacity"
)

// The requests of this file are those of a person who asks why; no daemon sends them.

// GetPod requests a pod. It returns nil without an error if the pod does not exist.
func (c *Client) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return podKind.get(ctx, c, namespace, name)
}

// GetClass requests a StorageClass. It returns nil without an error if the class does not exist.
func (c *Client) GetClass(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	return classKind.get(ctx, c, "", name)
}

// EachEvent reads the events of a namespace that a field selector leaves, a page at a time.
func (c *Client) EachEvent(ctx context.Context, namespace, fields string,
	visit func(*corev1.Event)) error {
	return eventKind.each(ctx, c, selection{namespace: namespace, fields: fields}, visit)
}

// EachRoom reads what all nodes publish for these drivers.
func (c *Client) EachRoom(ctx context.Context, drivers []string,
	visit func(storagecapacity.Object)) error {
	return c.EachCapacity(ctx, drivers, "", func(o *storagev1.CSIStorageCapacity) {
		visit(capacityOf(o))
	})
}

// ContextNamespace is the namespace of a context of a kubeconfig, or of its current one for "";
// "default" if it names none.
func ContextNamespace(kubeconfig, context string) string {
	raw, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return corev1.NamespaceDefault
	}
	config := clientcmd.NewDefaultClientConfig(*raw, &clientcmd.ConfigOverrides{CurrentContext: context})
	if namespace, _, err := config.Namespace(); err == nil {
		return namespace
	}
	return corev1.NamespaceDefault
}
