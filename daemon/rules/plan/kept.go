package plan

import corev1 "k8s.io/api/core/v1"

// Keeps reports whether a volume object is kept for a claim, and is not the one that a provisioner
// makes for it: an administrator or the scheduler wrote the claim into it (spec.claimRef).
// kube-controller-manager binds such a claim to it, and asks no provisioner
// (pkg/controller/volume/persistentvolume, findBestMatchForClaim). The phase tells nothing: a
// volume that has another claim names that by its UID.
func Keeps(v *corev1.PersistentVolume) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && v.Name != "pvc-"+string(ref.UID)
}

// KeptFor reports whether the claimRef of a volume of which Keeps holds is for this claim. Without
// a UID it is for each claim of the name.
func KeptFor(ref corev1.ObjectReference, c *corev1.PersistentVolumeClaim) bool {
	return ref.Namespace == c.Namespace && ref.Name == c.Name && (ref.UID == "" || ref.UID == c.UID)
}
