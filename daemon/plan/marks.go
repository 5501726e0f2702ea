package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Marks are what a volume object's metadata is to become: nil values are taken off, finalizers are the
// whole list. Reclaim is its policy, "" for the one that it has.
type Marks struct {
	Labels, Annotations map[string]*string
	Finalizers          []string
	Reclaim             corev1.PersistentVolumeReclaimPolicy
}

// adopting is the value of AdoptingAnnotation: of a pool that all nodes share, each node may adopt.
func adopting(pool Pool, node string) string {
	if pool.ofOneNode() {
		return node
	}
	return pool.Scope
}

// Begun reports whether a call of this node was cut off that was about to record the volume in this pool.
func Begun(v *corev1.PersistentVolume, pool Pool, node string) bool {
	return v.Annotations[AdoptingAnnotation] == adopting(pool, node) && AdoptDirectory(pool, v) != ""
}

// AdoptingMarks are those of a volume that this node is about to record. No daemon watches it by them.
func AdoptingMarks(v *corev1.PersistentVolume, pool Pool, node string) Marks {
	by := adopting(pool, node)
	return Marks{
		Labels:      map[string]*string{},
		Annotations: map[string]*string{AdoptingAnnotation: &by},
		Finalizers:  slices.Clone(v.Finalizers),
	}
}

// AdoptMarks make a volume one that this node's daemon watches and removes.
func AdoptMarks(v *corev1.PersistentVolume, pool Pool, node string) Marks {
	before := AdoptedWithout
	if slices.Contains(v.Finalizers, Finalizer) {
		before = AdoptedWith
	}
	if said, again := v.Annotations[AdoptedAnnotation]; again {
		before = said
	}
	m := Marks{
		Labels:      map[string]*string{},
		Annotations: map[string]*string{AdoptedAnnotation: &before, AdoptingAnnotation: nil},
		Finalizers:  slices.Clone(v.Finalizers),
	}
	for key, value := range labels(pool, node) {
		m.Labels[key] = &value
	}
	if !slices.Contains(m.Finalizers, Finalizer) {
		m.Finalizers = append(m.Finalizers, Finalizer)
	}
	return m
}

// labelledFor says whether a volume has them.
func labelledFor(v *corev1.PersistentVolume, pool Pool, node string) bool {
	for key, value := range labels(pool, node) {
		if v.Labels[key] != value {
			return false
		}
	}
	return true
}

// ReturnMarks leave a volume as its own system made it, or would have.
func ReturnMarks(v *corev1.PersistentVolume) Marks {
	m := Marks{
		Labels:      map[string]*string{NodeLabel: nil, PoolLabel: nil, ScopeLabel: nil},
		Annotations: map[string]*string{AdoptedAnnotation: nil, AdoptingAnnotation: nil},
		Finalizers:  slices.Clone(v.Finalizers),
	}
	_, begun := v.Annotations[AdoptingAnnotation]
	_, adopted := v.Annotations[AdoptedAnnotation]
	if begun && !adopted { // a call that was cut off: no finalizer was added
		return m
	}
	if v.Annotations[AdoptedAnnotation] != AdoptedWith {
		m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool { return f == Finalizer })
	}
	return m
}
