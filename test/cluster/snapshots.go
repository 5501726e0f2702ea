package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
)

// Snapshots plays the snapshot-controller in one namespace: it makes and removes VolumeSnapshots
// and their contents as that does (external-snapshotter v8.6.0, pkg/common-controller). Tests with
// the real one are in test/upstream/snapshotter.
type Snapshots struct {
	client            dynamic.Interface
	namespace, driver string
}

// Snapshots applies the resources, without their schemas, and makes a VolumeSnapshotClass of the
// driver's name.
func (c *Cluster) Snapshots(ctx context.Context, namespace, driver string) (*Snapshots, error) {
	s, err := c.SnapshotResources(ctx, namespace, driver, snapshotResources())
	if err != nil {
		return nil, err
	}
	return s, s.Class(ctx, driver, nil)
}

// SnapshotResources applies these definitions of the resources, and waits until they are served.
func (c *Cluster) SnapshotResources(
	ctx context.Context, namespace, driver string, definitions []byte,
) (*Snapshots, error) {
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return nil, err
	}
	s := &Snapshots{client, namespace, driver}
	if err := c.Apply(ctx, definitions); err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
		return nil, err
	}
	for _, resource := range []string{"volumesnapshots", "volumesnapshotcontents", "volumesnapshotclasses"} {
		err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			_, err := s.Of(resource).List(ctx, metav1.ListOptions{})
			return err == nil, nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s are not served: %w", resource, err)
		}
	}
	return s, nil
}

// snapshotResources are CustomResourceDefinitions of the names of the real ones.
func snapshotResources() []byte {
	var b strings.Builder
	for _, c := range []struct{ kind, plural, scope string }{
		{"VolumeSnapshot", "volumesnapshots", "Namespaced"}, {"VolumeSnapshotContent", "volumesnapshotcontents", "Cluster"},
		{"VolumeSnapshotClass", "volumesnapshotclasses", "Cluster"},
	} {
		fmt.Fprintf(&b, `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[2]s.snapshot.storage.k8s.io
  annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes-csi/external-snapshotter/pull/814"}
spec:
  group: snapshot.storage.k8s.io
  names: {kind: %[1]s, listKind: %[1]sList, plural: %[2]s, singular: %[3]s}
  scope: %[4]s
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, c.kind, c.plural, strings.ToLower(c.kind), c.scope)
	}
	return []byte(b.String())
}

// Of is the client for volumesnapshots, volumesnapshotcontents or volumesnapshotclasses.
func (s *Snapshots) Of(resource string) dynamic.ResourceInterface {
	all := s.client.Resource(schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: resource})
	if resource == "volumesnapshots" {
		return all.Namespace(s.namespace)
	}
	return all
}

func (s *Snapshots) create(ctx context.Context, resource, kind, name string, fields map[string]any, finalizers ...string) (types.UID, error) {
	o := &unstructured.Unstructured{Object: fields}
	o.SetAPIVersion("snapshot.storage.k8s.io/v1")
	o.SetKind(kind)
	o.SetName(name)
	o.SetFinalizers(finalizers)
	made, err := s.Of(resource).Create(ctx, o, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return made.GetUID(), nil
}

// Class makes a VolumeSnapshotClass.
func (s *Snapshots) Class(ctx context.Context, name string, parameters map[string]any) error {
	_, err := s.create(ctx, "volumesnapshotclasses", "VolumeSnapshotClass", name, map[string]any{"driver": s.driver, "deletionPolicy": "Delete", "parameters": parameters})
	return err
}

const contentFinalizer = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"

// Ask makes a VolumeSnapshot of a volume, and its content, whose name it returns. The volume need
// not be of source csi, which the real snapshot-controller asks for.
func (s *Snapshots) Ask(ctx context.Context, name, volume, class, policy string) (content string, err error) {
	uid, err := s.create(ctx, "volumesnapshots", "VolumeSnapshot", name, map[string]any{"spec": map[string]any{}})
	if err != nil {
		return "", err
	}
	content = "snapcontent-" + string(uid)
	_, err = s.create(ctx, "volumesnapshotcontents", "VolumeSnapshotContent", content, map[string]any{"spec": map[string]any{
		"driver": s.driver, "deletionPolicy": policy, "volumeSnapshotClassName": class, "source": map[string]any{"volumeHandle": volume},
		"volumeSnapshotRef": map[string]any{"namespace": s.namespace, "name": name, "uid": string(uid)},
	}}, contentFinalizer)
	return content, err
}

// Import makes a VolumeSnapshot of a snapshot that there is, and its content.
func (s *Snapshots) Import(ctx context.Context, name, content, handle string) error {
	_, err := s.create(ctx, "volumesnapshots", "VolumeSnapshot", name, map[string]any{"spec": map[string]any{}})
	_, err2 := s.create(ctx, "volumesnapshotcontents", "VolumeSnapshotContent", content, map[string]any{"spec": map[string]any{
		"driver": s.driver, "deletionPolicy": "Delete", "source": map[string]any{"snapshotHandle": handle},
		"volumeSnapshotRef": map[string]any{"namespace": s.namespace, "name": name},
	}}, contentFinalizer)
	return errors.Join(err, err2)
}

// Status is a content's, nil if there is no content.
func (s *Snapshots) Status(ctx context.Context, content string) (map[string]any, error) {
	o, err := s.Of("volumesnapshotcontents").Get(ctx, content, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	status, _, err := unstructured.NestedMap(o.Object, "status")
	return status, err
}

// Bind says in a VolumeSnapshot that it is ready, as its content is.
func (s *Snapshots) Bind(ctx context.Context, name, content string) error {
	_, err := s.Of("volumesnapshots").Patch(ctx, name, types.MergePatchType,
		fmt.Appendf(nil, `{"status":{"readyToUse":true,"boundVolumeSnapshotContentName":%q}}`, content), metav1.PatchOptions{}, "status")
	return err
}

// Remove deletes a VolumeSnapshot and its content, and does not wait.
func (s *Snapshots) Remove(ctx context.Context, name, content string) error {
	if err := s.Of("volumesnapshots").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	_, err := s.Of("volumesnapshotcontents").Patch(ctx, content, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"snapshot.storage.kubernetes.io/volumesnapshot-being-deleted":"yes"}}}`), metav1.PatchOptions{})
	return errors.Join(err, s.Of("volumesnapshotcontents").Delete(ctx, content, metav1.DeleteOptions{}))
}

// Gone reports whether there is no content of the name.
func (s *Snapshots) Gone(ctx context.Context, content string) (bool, error) {
	_, err := s.Of("volumesnapshotcontents").Get(ctx, content, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

// FromSnapshot is the source of a claim that is to be made from a snapshot.
func FromSnapshot(name string) *corev1.TypedLocalObjectReference {
	group := "snapshot.storage.k8s.io"
	return &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: name}
}
