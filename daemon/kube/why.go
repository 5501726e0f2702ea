package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/storagecapacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// The requests of this file are those of a person who asks why; no daemon sends them.

// GetPod requests a pod. It returns nil without an error if the pod does not exist.
func (c *Client) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	request := c.core.Get().Namespace(namespace).Resource("pods")
	return read[corev1.Pod](ctx, request, name, "pod "+namespace+"/"+name)
}

// GetClass requests a StorageClass. It returns nil without an error if the class does not exist.
func (c *Client) GetClass(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	request := c.storage.Get().Resource("storageclasses")
	return read[storagev1.StorageClass](ctx, request, name, "class "+words.Quoted(name))
}

// EachEvent reads the events of a namespace that a field selector leaves, a page at a time.
func (c *Client) EachEvent(ctx context.Context, namespace, fields string,
	visit func(*corev1.Event)) error {
	source := c.source(c.core, "events", func() runtime.Object { return &corev1.EventList{} })
	source.namespace, source.fields = namespace, fields
	return each(ctx, source, visit)
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
