package adoptrules

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

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
