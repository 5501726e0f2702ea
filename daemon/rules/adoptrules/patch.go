package adoptrules

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// adopting is the value of AdoptingAnnotation: of a pool that all nodes share, each node may adopt.
func adopting(pool plan.Pool, node string) string {
	if pool.OfOneNode() {
		return node
	}
	return pool.Scope
}

// Begun reports whether a call of this node was cut off that was about to record the volume in this
// pool.
func Begun(v *corev1.PersistentVolume, pool plan.Pool, node string) bool {
	return v.Annotations[AdoptingAnnotation] == adopting(pool, node) && DirectoryOf(pool, v) != ""
}

// Size is what a pool is to keep for a volume: what its claim requests, and its capacity at most.
// Of one without a claim (nil) nothing says what was requested where its program wrote the
// filesystem's size: the files that are there need no promise.
func Size(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) resource.Quantity {
	capacity := v.Spec.Capacity[corev1.ResourceStorage]
	var size resource.Quantity
	if claim != nil {
		size = claim.Spec.Resources.Requests[corev1.ResourceStorage]
	} else if by, _ := plan.SystemOf(v.Annotations[plan.ProvisionedBy]); !by.Whole {
		return capacity
	}
	wanted, _ := plan.Bytes(size)
	if has, _ := plan.Bytes(capacity); wanted >= has {
		return capacity
	}
	return size
}

// AdoptingPatch is for a volume that this node is about to record. No daemon watches a volume by
// it.
func AdoptingPatch(v *corev1.PersistentVolume, pool plan.Pool, node string) plan.MetadataPatch {
	by := adopting(pool, node)
	return annotate(v, map[string]*string{AdoptingAnnotation: &by})
}

// annotate changes annotations of a volume, and nothing else.
func annotate(v *corev1.PersistentVolume, as map[string]*string) plan.MetadataPatch {
	return plan.MetadataPatch{Labels: map[string]*string{}, Annotations: as,
		Finalizers: slices.Clone(v.Finalizers)}
}

// SizedPatch is AdoptingPatch of a volume with the size that the pool keeps for it.
func SizedPatch(v *corev1.PersistentVolume, pool plan.Pool, node string,
	size resource.Quantity) plan.MetadataPatch {
	m := AdoptingPatch(v, pool, node)
	m.Annotations[plan.SizeAnnotation] = nil
	if capacity := v.Spec.Capacity[corev1.ResourceStorage]; size.Cmp(capacity) != 0 {
		note := plan.SizeNote(v, size)
		m.Annotations[plan.SizeAnnotation] = &note
	}
	return m
}

// AdoptedPatch makes a volume one that this node's daemon watches and removes.
func AdoptedPatch(v *corev1.PersistentVolume, pool plan.Pool, node string) plan.MetadataPatch {
	before := AdoptedWithout
	if slices.Contains(v.Finalizers, plan.Finalizer) {
		before = AdoptedWith
	}
	if said, again := v.Annotations[plan.AdoptedAnnotation]; again {
		before = said
	}
	m := annotate(v, map[string]*string{
		plan.AdoptedAnnotation: &before, AdoptingAnnotation: nil})
	for key, value := range plan.VolumeLabels(pool, node) {
		m.Labels[key] = &value
	}
	if v.Spec.CSI != nil {
		at := pool.Path + "/" + v.Spec.CSI.VolumeHandle
		m.Annotations[plan.PathAnnotation] = &at
	}
	if !slices.Contains(m.Finalizers, plan.Finalizer) {
		m.Finalizers = append(m.Finalizers, plan.Finalizer)
	}
	return m
}

// SizePatch notes another size that the pool keeps for an adopted volume.
func SizePatch(v *corev1.PersistentVolume, size resource.Quantity) plan.MetadataPatch {
	note := plan.SizeNote(v, size)
	return annotate(v, map[string]*string{plan.SizeAnnotation: &note})
}

// labelledFor reports whether a volume has the labels that adoption puts on it.
func labelledFor(v *corev1.PersistentVolume, pool plan.Pool, node string) bool {
	for key, value := range plan.VolumeLabels(pool, node) {
		if v.Labels[key] != value {
			return false
		}
	}
	return true
}

// UndoPatch leaves a volume as its own system made it, or would have.
func UndoPatch(v *corev1.PersistentVolume) plan.MetadataPatch {
	m := annotate(v, map[string]*string{plan.AdoptedAnnotation: nil, AdoptingAnnotation: nil,
		plan.SizeAnnotation: nil})
	m.Labels = map[string]*string{plan.NodeLabel: nil, plan.PoolLabel: nil, plan.ScopeLabel: nil}
	if v.Spec.CSI != nil {
		m.Annotations[plan.PathAnnotation] = nil
	}
	_, begun := v.Annotations[AdoptingAnnotation]
	_, adopted := v.Annotations[plan.AdoptedAnnotation]
	if begun && !adopted { // a call that was cut off: no finalizer was added
		return m
	}
	switch had := v.Annotations[plan.AdoptedAnnotation] == AdoptedWith; {
	case !had:
		m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool { return f == plan.Finalizer })
	case !slices.Contains(m.Finalizers, plan.Finalizer): // the daemon took it off since
		m.Finalizers = append(m.Finalizers, plan.Finalizer)
	}
	return m
}

// Undoable reports whether a record is of a volume that another system could take over: adopted
// from it, or made under its name.
func Undoable(self plan.Self, recordedBy string) bool {
	_, known := plan.SystemOf(recordedBy)
	return recordedBy != self.Provisioner && recordedBy != "" && (known || slices.Contains(self.Aliases, recordedBy))
}

// Marked reports whether an object that this node can give up without a record has the labels of a
// volume of this pool. One that was made in the place of a CSI driver's is told by its record
// alone.
func Marked(self plan.Self, v *corev1.PersistentVolume, pool plan.Pool) bool {
	return v.Annotations[plan.AdoptedAnnotation] != AdoptedFromCSI && Undoable(self, v.Annotations[plan.ProvisionedBy]) && !OfDriver(v, self.Provisioner) &&
		labelledFor(v, pool, self.Node) && DirectoryOf(pool, v) != ""
}

// ForUndo decides whether this node can undo an adoption: the object becomes what it was, the
// directory stays untouched, and the record is removed. v is nil if there is no such object.
//
// A volume of the daemon's own CSI driver stays the daemon's, whatever class it was made for: the
// driver finds it by its record, and no other system can. An inline volume goes with its pod.
func ForUndo(r record.Record, v *corev1.PersistentVolume, self plan.Self) Verdict {
	refused := func(format string, args ...any) Verdict {
		return Verdict{Action: plan.Refuse, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case r.Place == record.Nowhere && v == nil: // removed; the daemon drops the record
		return Verdict{Action: plan.Ignore}
	case r.Kind == record.Inline, v != nil && OfDriver(v, self.Provisioner):
		return Verdict{Action: plan.Ignore}
	case r.Kind == record.Snapshot:
		return refused("it is a snapshot, which is this daemon's alone: delete its VolumeSnapshot first, or keep the daemon for it")
	case r.Place == record.InTrash, r.Place == record.Emptying:
		return refused("it is being removed: its directory is %s", r.Place.Describe())
	case r.Place != record.InPool:
		return refused("its directory is %s", r.Place.Describe())
	case v == nil:
		return refused("no volume object has its name")
	case v.Labels[plan.NodeLabel] != "" && v.Labels[plan.NodeLabel] != plan.NodeLabelValue(self.Node):
		return refused("the volume object is node %s's", v.Labels[plan.NodeLabel])
	case plan.NeedsWork(v) && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete:
		return refused("it is being removed")
	default:
		return Verdict{Action: Undo}
	}
}
