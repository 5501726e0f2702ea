package plan

import corev1 "k8s.io/api/core/v1"

// MetadataPatch is a change of a volume object's metadata and policy. The key of a nil value is
// removed, Finalizers is the whole list, and an empty Reclaim leaves the reclaim policy as it is.
type MetadataPatch struct {
	Labels, Annotations map[string]*string
	Finalizers          []string
	Reclaim             corev1.PersistentVolumeReclaimPolicy
}
