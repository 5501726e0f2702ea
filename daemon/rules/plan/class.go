package plan

import corev1 "k8s.io/api/core/v1"

// ClassName is the name of a claim's class, "" if it names none. Where the annotation and the field
// differ the annotation counts, even an empty one: to ResourceQuota, the scheduler and the binder,
// too (component-helpers, storage/volume, GetPersistentVolumeClaimClass).
func ClassName(c *corev1.PersistentVolumeClaim) string {
	if class, has := c.Annotations[ClassBeta]; has {
		return class
	}
	if c.Spec.StorageClassName != nil {
		return *c.Spec.StorageClassName
	}
	return ""
}

// VolumeClass is the name of a volume's class, by the same rule (GetPersistentVolumeClass).
func VolumeClass(v *corev1.PersistentVolume) string {
	if class, has := v.Annotations[ClassBeta]; has {
		return class
	}
	return v.Spec.StorageClassName
}
