package plan

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// Tombstone is what stays in the API of a volume of scope every-node whose object went: the proof,
// for the nodes that were off or could not, that its claim is gone and what is to become of its
// data. The node that lets the object go writes it first.
//
// It is the only proof that a node accepts. That an object is absent proves nothing: the cluster
// may have been restored to a day before the claim was made, be another one, or have lost the
// object to a user who took its finalizer off. A tombstone cannot be there by accident in any of
// these cases, because it was written in this history of this cluster, for this claim's UID.
type Tombstone struct {
	PV       string
	ClaimUID string
	Claim    string // namespace/name, for people
	Class    string // of the volume: tombstones are counted by namespace and class
	Node     string // that wrote it
	// Data is what is to become of it: Delete, which leaves it to each node's record whether that
	// means the archive, or Retain.
	Data Action
}

// NewTombstone is the one that a volume gets when its object is let go with this action. recorded
// is the UID of the claim in this node's record, "" if that is gone: the object may be another
// claim's by now, or have none. Then the UID is in the name of a volume that was made here; of an
// adopted one the object alone has it.
func NewTombstone(v *corev1.PersistentVolume, recorded, node string, done Action) Tombstone {
	t := Tombstone{PV: v.Name, ClaimUID: recorded, Class: VolumeClass(v), Node: node, Data: Delete}
	ref := v.Spec.ClaimRef
	if ref != nil {
		t.Claim = ref.Namespace + "/" + ref.Name
	}
	named, derived := strings.CutPrefix(v.Name, "pvc-")
	switch {
	case recorded != "":
	case ref != nil && (Adopted(v) || !derived):
		t.ClaimUID = string(ref.UID)
	case derived:
		t.ClaimUID = named
	}
	if done == Retain {
		t.Data = Retain
	}
	return t
}

// Buryable reports whether a tombstone can matter: object and claim are gone. A claim of the same
// name and another UID is another one.
func Buryable(f RecordFacts) bool {
	return f.Record.Scope == ScopeEveryNode && f.Volume == nil && (f.Claim == nil || string(f.Claim.UID) != f.Record.ClaimUID)
}

// buried is what the tombstone says of a record whose object and claim are gone; nothing, if it is
// for another claim.
func (f RecordFacts) buried() (Verdict, bool) {
	t := f.Tombstone
	switch {
	case !Buryable(f), t == nil || t.ClaimUID != f.Record.ClaimUID || t.PV != f.Record.PV:
		return Verdict{}, false
	case t.Data == Retain && f.Record.Whole():
		return Verdict{Action: PutBack, Reason: ReasonRetained}, true
	case t.Data == Retain:
		return Verdict{Action: Retain, Reason: ReasonRetained}, true
	case t.Data != Delete:
		return Verdict{}, false
	case f.Record.OnDelete == OnDeleteArchive && f.Record.Place != record.InTrash:
		return Verdict{Action: Archive, Reason: ReasonArchived}, true
	default:
		return Verdict{Action: Delete, Reason: ReasonDeletedLate}, true
	}
}
