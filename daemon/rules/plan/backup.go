package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What kube-controller-manager writes when it binds (pkg/controller/volume/persistentvolume). A
// claim that says that it is bound, to a volume that knows another UID, is Lost for ever.
const (
	bindCompleted     = "pv.kubernetes.io/bind-completed"
	boundByController = "pv.kubernetes.io/bound-by-controller"
)

// Backup returns a volume and its claim as they are created anew in a cluster that has neither, so
// that the two are bound. claim is nil for a volume whose claim is gone, which stays released. ok
// is false for what goes with its claim or its pod.
func Backup(
	v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim,
) (volume *corev1.PersistentVolume, bound *corev1.PersistentVolumeClaim, ok bool) {
	ref := v.Spec.ClaimRef
	if claim != nil && (ref == nil || ref.UID != "" && ref.UID != claim.UID) {
		claim = nil
	}
	ofPod := claim != nil && slices.ContainsFunc(claim.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == "Pod"
	})
	goes := claim == nil && ref != nil && ref.UID != "" &&
		v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
	if v.DeletionTimestamp != nil || ofPod || goes {
		return nil, nil, false
	}
	volume = &corev1.PersistentVolume{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}}
	volume.ObjectMeta, volume.Spec = anew(v.ObjectMeta), *v.Spec.DeepCopy()
	if slices.Contains(v.Finalizers, Finalizer) {
		volume.Finalizers = []string{Finalizer}
	}
	if now := volume.Spec.ClaimRef; now != nil {
		now.ResourceVersion = ""
		if claim != nil {
			now.UID = ""
		}
	}
	if claim == nil {
		return volume, nil, true
	}
	bound = &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, Spec: *claim.Spec.DeepCopy(),
	}
	bound.ObjectMeta, bound.Spec.VolumeName = anew(claim.ObjectMeta), v.Name
	return volume, bound, true
}

// anew is what a user gives of an object. An owner is gone with its cluster, and would take the
// object along.
func anew(m metav1.ObjectMeta) metav1.ObjectMeta {
	made := metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, Labels: m.Labels, Annotations: map[string]string{}}
	for key, value := range m.Annotations {
		if key != bindCompleted && key != boundByController {
			made.Annotations[key] = value
		}
	}
	return made
}
