package report

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
)

// Events writes events. It never blocks.
type Events interface {
	Event(ref corev1.ObjectReference, kind, reason, message string)
}

// Claim is the reference of a claim, at the version that was looked at.
func Claim(c *corev1.PersistentVolumeClaim) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion}
}

// RecordedClaim is the reference of the claim that a volume's record names, which may be gone.
func RecordedClaim(namespace, name, uid string) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: namespace, Name: name, UID: types.UID(uid)}
}

// Volume is the reference of a volume object.
func Volume(v *corev1.PersistentVolume) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "PersistentVolume", APIVersion: "v1", Name: v.Name, UID: v.UID}
}

// Snapshot is the reference of the VolumeSnapshot that a content names.
func Snapshot(ref snapshotapi.SnapshotRef) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: snapshotapi.Kind, APIVersion: snapshotapi.GroupVersion.String(), Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
}

// Node is the reference of a node. Its UID is the node's name, as in kubelet's own node events
// (pkg/kubelet, nodeRef), so that kubectl describe node shows them together.
func Node(name string) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: name, UID: types.UID(name)}
}
