package plan

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// A restore is a claim whose source is a VolumeSnapshot of its namespace. It is made where the
// snapshot is, as a clone is made where its source is.

// IsRestore reports whether a claim is to be made from a snapshot.
func IsRestore(c *corev1.PersistentVolumeClaim) bool { return ofSnapshot(sourceOf(c)) }

// IsCopy reports whether a claim is to be made from another claim or from a snapshot.
func IsCopy(c *corev1.PersistentVolumeClaim) bool { return IsClone(c) || IsRestore(c) }

func ofSnapshot(from *corev1.TypedObjectReference) bool {
	return from != nil && from.Kind == snapshotapi.Kind && from.APIGroup != nil && *from.APIGroup == snapshotapi.GroupVersion.Group
}

// SnapshotFacts is what is known of the snapshot that a claim is to be made from.
type SnapshotFacts struct {
	Asked    bool                  // Snapshot was read from the API just now
	Snapshot *snapshotapi.Snapshot // nil: there is none of the name, or it was not asked for
	Content  *snapshotapi.Content  // that it is bound to, nil: none of the daemon's driver
	Record   *record.Record        // nil: no pool of this node that could be looked at has the snapshot
	Pool     string                // that has it
	Source   bool                  // Record is nil, and a pool of this node has its volume
	Unread   string                // why a pool of this node could not be looked at, "" if each was
}

// restoreRules are the rules about the snapshot of a restore: the first one that applies decides.
var restoreRules = []requestRule{
	otherNamespace, scopeOfClone, snapshotUnknown, snapshotElsewhere, snapshotMissing, snapshotGoing, snapshotUnready, otherPoolOfSnapshot, smallerThanSnapshot,
}

// restoreRefused applies restoreRules.
func restoreRefused(f RequestFacts) (Refusal, bool) {
	if !ofSnapshot(f.Request.Source) {
		return Refusal{}, false
	}
	return ofSource(restoreRules, f, "snapshot")
}

// taken is what is known of the snapshot, empty where that is nothing.
func (f RequestFacts) taken() SnapshotFacts {
	if f.From == nil || f.From.Taken == nil {
		return SnapshotFacts{}
	}
	return *f.From.Taken
}

func restoresOff(f RequestFacts) (Refusal, bool) {
	return Refusal{Reason: ReasonDataSource, Message: fmt.Sprintf("dataSource: pool %s makes no volumes from snapshots (snapshots); use an empty claim and copy the data", f.Pool.Name)},
		ofSnapshot(f.Request.Source) && !f.Pool.TakesSnapshots()
}

// snapshotUnknown is of a node that does not look after the claim.
func snapshotUnknown(f RequestFacts) (Refusal, bool) {
	return Refusal{Help: ByNode, Reason: ReasonSource, Message: "it is not this node's"}, f.From == nil || f.From.Taken == nil
}

// snapshotElsewhere: a snapshot without a record here is another node's, or no driver's that is
// ours. One that was this node's, and is said to be ready, was removed by another content of the
// same handle, or by people: no other node has it.
func snapshotElsewhere(f RequestFacts) (Refusal, bool) {
	s := f.taken()
	switch {
	case s.Record != nil || s.Asked && s.Snapshot == nil:
		return Refusal{}, false
	case s.Unread != "":
		return Refusal{Help: ByNode, Reason: ReasonPoolClosed, Message: s.Unread}, true
	case s.Asked && s.Content == nil && !s.ready():
		return Refusal{}, false
	case s.Asked && s.Content == nil:
		return Refusal{Help: ByNode, Reason: ReasonSource, Message: "it is of another driver"}, true
	case s.Asked && s.Content.Ready() && NodeOfContent(s.Content) == f.Node:
		return Refusal{Help: ByItself, Reason: ReasonSource, After: retryAfter, Message: "its data is gone from this node, which had it"}, true
	case s.Asked && s.Content.Ready() && s.Source:
		message := fmt.Sprintf("it is said to be ready on node %s, and this node, which has its volume, "+
			"made none", words.Quoted(NodeOfContent(s.Content)))
		return Refusal{Help: ByItself, Reason: ReasonSource, After: retryAfter, Message: message}, true
	}
	message := "it is not this node's"
	if s.Content != nil && NodeOfContent(s.Content) != "" {
		message = "it is on node " + words.Name(NodeOfContent(s.Content))
	}
	return Refusal{Help: ByNode, Reason: ReasonSource, Message: message}, true
}

func (s SnapshotFacts) ready() bool {
	return s.Snapshot != nil && s.Snapshot.Status != nil && s.Snapshot.Status.ReadyToUse != nil && *s.Snapshot.Status.ReadyToUse
}

func snapshotMissing(f RequestFacts) (Refusal, bool) {
	return Refusal{Help: ByItself, Reason: ReasonSource, After: retryAfter, Message: "the namespace has no snapshot of this name"}, f.taken().Snapshot == nil
}

func snapshotGoing(f RequestFacts) (Refusal, bool) {
	s := f.taken().Snapshot
	return Refusal{Help: ByItself, Reason: ReasonSource, After: retryAfter, Message: "it is being deleted"}, s != nil && s.DeletionTimestamp != nil
}

// snapshotUnready: what a VolumeSnapshot says of its content counts only where the content says the
// same of it.
func snapshotUnready(f RequestFacts) (Refusal, bool) {
	s := f.taken()
	bound := s.ready() && s.Content != nil && s.Content.Ready() && s.Snapshot.Status.BoundContent != nil && *s.Snapshot.Status.BoundContent == s.Content.Name &&
		s.Content.Spec.SnapshotRef.UID == s.Snapshot.UID && s.Record != nil && s.Record.Place == record.InPool && !s.Record.Unpublished
	return Refusal{Help: ByItself, Reason: ReasonSource, After: sourceAgain, Message: "it is not ready"}, !bound
}

func otherPoolOfSnapshot(f RequestFacts) (Refusal, bool) {
	return Refusal{Reason: ReasonSource, Message: fmt.Sprintf("it is in pool %s, and the claim's class leads to pool %s; use a class of the same pool", f.taken().Pool, f.Pool.Name)},
		f.taken().Pool != f.Pool.Name
}

func smallerThanSnapshot(f RequestFacts) (Refusal, bool) {
	from := f.taken().Record
	if from == nil {
		return Refusal{}, false
	}
	of := resource.NewQuantity(from.Requested, resource.BinarySI)
	return Refusal{Reason: ReasonSource, Message: fmt.Sprintf("it is of a volume of %s, and the claim requests %s: request as much or more",
		of.String(), words.Name(f.Request.Size.String()))}, f.Request.Size.Cmp(*of) < 0
}
