package plan

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// A volume of scope every-node has a directory on each node: that node's part of it. Its rules are
// here, beside those for claims and volumes, and not in package everynode, which gathers PartFacts
// and acts: a rule may read no disk, API or clock, which holds for this package (TestPlanIsPure),
// and these share pools, verdicts and directory names with the others.

// PartFacts is everything that a decision about this node's part of a volume depends on.
type PartFacts struct {
	Self
	Volume     *corev1.PersistentVolume // as the watch brought it: nothing is destroyed here
	Pool       Pool                     // the pool of this node that the volume's label names, with its class's settings
	Closed     string                   // why nothing can be read in the pool, "" if that is possible
	Full       string                   // why nothing new may be made in the pool, "" if it takes work
	Room       capacity.Room            // for one more volume
	Record     *record.Record           // nil: the disk has no record of it
	Unreadable string                   // why the record cannot be read, "" if it can or there is none
}

type partRule func(PartFacts) (Verdict, bool)

// partRules is the specification: the first rule that applies decides. What is not this node's
// comes first, then what this node has already, then why it cannot.
var partRules = []partRule{
	partNotOurs, partNotInUse, partOtherScope, partBadName, partPathMismatch, partPoolClosed, partUnreadable, partGrowthDoesNotFit, partSmaller, partRecorded, partRemoved, partPoolFull, partDoesNotFit,
}

// Note, of a directory that this node should have, is to note in its record that it has its object
// now.
const Note Action = "note"

// ForPart decides about the directory that this node should have for a volume of scope every-node:
// Provision is to make it, Expand to make it larger, Ignore is to leave all as it is, Note nearly
// so, Wait says why there is none, or why it stays smaller.
func ForPart(f PartFacts) Verdict {
	return Decide(partRules, f, Verdict{Action: Provision})
}

// InUse reports, from the object alone, whether a volume may be in a pod, now or soon: it waits for
// its claim or is bound to it. Also one that a user deleted is in use until its claim goes.
func InUse(v *corev1.PersistentVolume) bool {
	switch v.Status.Phase {
	case corev1.VolumeReleased, corev1.VolumeFailed:
		return false
	case corev1.VolumeAvailable:
		return v.Spec.ClaimRef != nil
	default:
		return true
	}
}

// partNotOurs: a volume that was retained and is bound to another claim now, by hand, is ours as
// before; its name is still the first one's.
func partNotOurs(f PartFacts) (Verdict, bool) {
	v, ref := f.Volume, f.Volume.Spec.ClaimRef
	ours := f.Serves(v.Annotations[ProvisionedBy]) && v.Labels[ScopeLabel] == ScopeEveryNode &&
		v.Spec.HostPath != nil && ref != nil && ref.UID != ""
	return Verdict{Action: Ignore}, !ours
}

func partNotInUse(f PartFacts) (Verdict, bool) { return Verdict{Action: Ignore}, !InUse(f.Volume) }

func partOtherScope(f PartFacts) (Verdict, bool) {
	return f.lacking(ReasonPathMismatch, fmt.Sprintf("pool %s has scope %s here; give it scope %s on every node", f.Pool.Name, f.Pool.Scope, ScopeEveryNode)),
		f.Pool.Scope != ScopeEveryNode
}

func partBadName(f PartFacts) (Verdict, bool) {
	_, err := f.directory()
	if err == nil {
		return Verdict{}, false
	}
	return f.lacking(ReasonBadName, "pool "+f.Pool.Name+": "+err.Error()), true
}

// partPathMismatch: pods on all nodes look at the path in the object, so the pool must be at the
// same path everywhere, and name directories alike.
func partPathMismatch(f PartFacts) (Verdict, bool) {
	name, _ := f.directory()
	want := f.Pool.Path + "/" + name
	return f.lacking(ReasonPathMismatch, fmt.Sprintf("the volume points to %q, and pool %s would have it at %s here; the pool's path and directory must be the same on every node",
		PathOf(f.Volume), f.Pool.Name, want)), PathOf(f.Volume) != want
}

func partPoolClosed(f PartFacts) (Verdict, bool) {
	return f.lacking(ReasonPoolClosed, "pool "+f.Pool.Name+": "+f.Closed), f.Closed != ""
}

func partUnreadable(f PartFacts) (Verdict, bool) {
	return f.lacking(ReasonRecordDamaged, f.Unreadable), f.Unreadable != ""
}

// partGrowthDoesNotFit: the claim was expanded, and this node has not the room for its part of
// that. The directory stays as it is.
func partGrowthDoesNotFit(f PartFacts) (Verdict, bool) {
	want, more := f.missing()
	if more <= 0 || uint64(more) <= f.Room.Free {
		return Verdict{}, false
	}
	return Verdict{Action: Wait, Reason: ReasonNotEnoughSpace, After: retryAfter, Message: fmt.Sprintf(
		"node %s: the directory of this volume is not expanded: %s, including %s to this one",
		f.Node, spaceMissing(f.Pool, want, f.Room), words.Size(f.Record.Reserved()))}, true
}

// partSmaller: another node expanded the claim.
func partSmaller(f PartFacts) (Verdict, bool) {
	_, more := f.missing()
	return Verdict{Action: Expand}, more > 0
}

// missing is the volume's size, and by how many bytes this node's directory is recorded with less,
// 0 if it is not.
func (f PartFacts) missing() (want resource.Quantity, more int64) {
	want = SizeOf(f.Volume)
	n, _ := Bytes(want)
	if r := f.Record; r != nil && r.Place == record.InPool && !r.Unpublished && r.Reserved() > 0 {
		more = max(0, n-int64(r.Reserved()))
	}
	return want, more
}

// partRecorded: a directory that is recorded is fine, whatever became of the pool's free space.
func partRecorded(f PartFacts) (Verdict, bool) {
	if f.Record == nil || f.Record.Place != record.InPool {
		return Verdict{}, false
	}
	if f.Record.Unpublished {
		return Verdict{Action: Note}, true
	}
	return Verdict{Action: Ignore}, true
}

// partRemoved: the claim went, this node removed its part, and then the cluster was restored to a
// day when the claim was there. What is whole is put back.
func partRemoved(f PartFacts) (Verdict, bool) {
	switch {
	case f.Record == nil:
		return Verdict{}, false
	case f.Record.Whole():
		return Verdict{Action: PutBack, Reason: ReasonPutBack, Message: "node " + f.Node +
			": this volume was being deleted and is in use again; the node's directory was restored"}, true
	case f.Record.Place == record.Emptying:
		return f.lacking(ReasonPartRemoved, "the directory of this volume was removed here, it is "+f.Record.Place.Describe()), true
	default:
		return Verdict{}, false
	}
}

func partPoolFull(f PartFacts) (Verdict, bool) {
	return f.lacking(ReasonPoolClosed, "pool "+f.Pool.Name+": "+f.Full), f.Full != ""
}

func partDoesNotFit(f PartFacts) (Verdict, bool) {
	want := SizeOf(f.Volume)
	if fits(want, f.Room.Free) {
		return Verdict{}, false
	}
	return f.lacking(ReasonNotEnoughSpace, spaceMissing(f.Pool, want, f.Room)), true
}

// lacking is the verdict that this node has no part for a reason. What can mend it (the pool opens,
// another configuration) brings the volume again; the retry is for free space and for what was
// lost.
func (f PartFacts) lacking(reason, message string) Verdict {
	return Verdict{Action: Wait, Reason: reason, Message: "node " + f.Node + " has no directory for this volume: " + message, After: retryAfter}
}

func (f PartFacts) directory() (string, error) {
	return DirectoryOf(f.Pool, f.Volume)
}

// PartRecord is the record of this node's part of a volume that ForPart found to be made.
func PartRecord(f PartFacts) (record.Record, error) {
	directory, err := f.directory()
	ref := f.Volume.Spec.ClaimRef
	return record.Record{
		PV: f.Volume.Name, Namespace: ref.Namespace, Claim: ref.Name, ClaimUID: string(ref.UID),
		Directory: directory, OnDelete: f.Pool.OnDelete,
	}, err
}

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
