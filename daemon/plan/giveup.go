package plan

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
)

// Returnable reports whether a record is of a volume that another system could take over: adopted from
// it, or made under its name.
func (s Self) Returnable(recordedBy string) bool {
	_, known := SystemOf(recordedBy)
	return recordedBy != s.Provisioner && recordedBy != "" && (known || slices.Contains(s.Aliases, recordedBy))
}

// ForReturn decides whether this node can give a volume up: its object as it was, its directory
// untouched, its record gone. v is nil if there is no such object.
func ForReturn(r record.Record, v *corev1.PersistentVolume, node string) AdoptVerdict {
	refused := func(format string, args ...any) AdoptVerdict {
		return AdoptVerdict{Action: Refuse, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case r.Place == record.Nowhere && v == nil: // removed; the daemon drops the record
		return AdoptVerdict{Action: Ignore}
	case r.Place == record.InTrash, r.Place == record.Emptying:
		return refused("it is being removed: its directory is %s", r.Place.Describe())
	case r.Place != record.InPool:
		return refused("its directory is %s", r.Place.Describe())
	case v == nil:
		return refused("no volume object has its name")
	case v.Labels[NodeLabel] != "" && v.Labels[NodeLabel] != NodeLabelValue(node):
		return refused("the volume object is node %s's", v.Labels[NodeLabel])
	case NeedsWork(v) && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete:
		return refused("it is being removed")
	default:
		return AdoptVerdict{Action: Return}
	}
}
