package plan

import (
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
)

// Actions for a record without a volume object, beside Ignore.
const (
	Keep   Action = "keep"   // a claim still wants it, or only an administrator can decide
	Undo   Action = "undo"   // never published, no claim wants it: remove the empty directory and the record
	Finish Action = "finish" // its removal was decided: purge what is in the trash, then the record
)

// RecordFacts is everything that a decision about a record depends on. It is asked only when the
// API was read and the pool is open.
type RecordFacts struct {
	Self
	Record     record.Record
	Volume     *corev1.PersistentVolume      // the object of this name, read from the API just now
	Claim      *corev1.PersistentVolumeClaim // the claim of this name, read from the API just now
	Tombstone  *Tombstone                    // the volume's, read from the API just now, of scope every-node only
	Former     []string                      // names that this node had before, by the operator's word
	NodeLabels map[string]string             // of this node's Node, nil if they are not known
	Scope      string                        // of the pool that has the record
	// Object is a volume object of another name for the record's claim, read from the API just now,
	// "" if there is none.
	Object string
	// Content is the VolumeSnapshotContent of a snapshot, nil if the cluster has none.
	// ContentUnknown: whether it has one could not be found out.
	Content        *snapshotapi.Content
	ContentUnknown bool
	// Beside: the object is of another pool of this node (InPool).
	Beside bool
	// Unsure: nothing shows that this is the cluster of the pool's volumes.
	Unsure bool
}

// ForRecord decides about a volume that the disk remembers. A volume that was never published was
// never in a pod, so its directory is empty; Undo removes nothing else. Data
// without an object (etcd was restored, a finalizer was forced off) is therefore never lost
// here: it is reported as orphaned. Only a tombstone says that it may go.
//
// That a directory is in the trash says that its removal was decided and not that the object went
// by this daemon's hand: the policy may have become Retain before. Who removed the object has the
// directory go on to Emptying at once, and what died before that is kept.
//
// The other way round, an empty directory proves nothing: a volume that a pod has and never wrote
// to is empty as well. So nothing is undone that has an object of this node under any label, or
// that another node made.
func ForRecord(f RecordFacts) Verdict {
	verdict, buried := f.buried()
	switch {
	case f.Record.Kind != record.Volume:
		return f.ofSnapshot()
	case f.givenUp():
		return Verdict{Action: PutBack, Reason: ReasonPutBack}
	case f.discarded():
		return Verdict{Action: Finish}
	case f.Record.Moving != "" && !f.halfReceived():
		return Verdict{Action: Keep} // import deletes the object for a moment, and makes it again
	case f.sentAway():
		return f.letGoByOthers()
	case f.unlabelled():
		return f.labelsMissing()
	case f.Record.Retained, f.published(), f.wanted(), !f.made():
		return Verdict{Action: Keep}
	case f.Record.Unheld && f.Record.Place == record.InPool:
		return f.letGoByOthers()
	case buried && verdict.Action != Delete && verdict.Action != Archive:
		return verdict
	case f.Record.Place == record.Emptying, f.Record.Place == record.InArchive:
		return Verdict{Action: Finish} // of the latter only the record is moved
	case buried:
		return verdict
	case f.Record.Place == record.InTrash:
		return Verdict{Action: Keep, Reason: ReasonOrphaned}
	case f.Record.Scope == ScopeEveryNode && f.Record.Place == record.InPool && !f.Record.Unpublished:
		// Empty or not: it had an object, so a pod of this or of another cluster may have it.
		return Verdict{Action: Keep, Reason: ReasonOrphaned}
	case f.Record.Replaced != "" && f.Record.Place == record.InPool:
		// A pod had it before it was ours, empty or not, and adopt can make its object again.
		return Verdict{Action: Keep, Reason: ReasonOrphaned}
	case f.Unsure: // that no object is there proves nothing in another cluster
		return Verdict{Action: Keep}
	default:
		return Verdict{Action: Undo, Reason: ReasonUnpublishedRemoved}
	}
}

// halfReceived: what was received of a stream was discarded before its object was to be made.
func (f RecordFacts) halfReceived() bool {
	r := f.Record
	return r.Origin.Kind == record.Stream &&
		(r.Place == record.Emptying || r.Place == record.Nowhere)
}

// sentAway: the volume was written to a stream, and its object is another node's by now, or
// another pool's: what is here is a copy, which is retained.
func (f RecordFacts) sentAway() bool {
	r := f.Record
	return r.Sent != "" && !r.Retained && r.Place == record.InPool && f.made() &&
		f.Volume != nil && (f.elsewhere() || f.Beside)
}

// letGoByOthers: people deleted the object, whose policy was to keep the data, or sent it away.
func (f RecordFacts) letGoByOthers() Verdict {
	if f.Unsure {
		return Verdict{Action: Keep}
	}
	return Verdict{Action: Retain, Reason: ReasonRetained}
}

// givenUp: the volume was being removed, and its object is kept and has no label of any daemon: it
// was adopted, and then the API server was restored to a day before that, or the adoption was
// undone and the policy changed in the middle of the removal.
func (f RecordFacts) givenUp() bool {
	v := f.Volume
	return v != nil && v.Labels[PoolLabel] == "" && f.Record.Scope != ScopeEveryNode && f.Record.Whole() && f.made() && !Going(v) && v.Spec.ClaimRef != nil &&
		string(v.Spec.ClaimRef.UID) == f.Record.ClaimUID && path.Base(PathOf(v)) == f.Record.Directory
}

// discarded: the daemon noted that the files may go, and the object is about to. That of scope
// every-node was let go by whichever node, and goes on by its tombstone.
func (f RecordFacts) discarded() bool {
	v := f.Volume
	return v != nil && MayBeLeft(f.Record) && !f.Record.Retained && f.made() && f.Object == "" && Leaving(v) &&
		v.Spec.ClaimRef != nil && string(v.Spec.ClaimRef.UID) == f.Record.ClaimUID
}

// MayBeLeft reports whether a record is of a volume whose files or record may go as soon as its
// object is let go.
func MayBeLeft(r record.Record) bool {
	return r.Scope != ScopeEveryNode && (r.Place == record.Emptying || r.Place == record.InArchive && !r.Archived)
}

// published: there is an object that may be this volume's. Its label alone proves nothing: a daemon
// that runs under another node's name reads its own volumes as another node's, and a pod may use
// them.
func (f RecordFacts) published() bool {
	return f.Object != "" || f.Volume != nil && !f.elsewhere() && !f.Beside
}

// InPool reports whether a volume object is of this node and of a directory of this pool.
func (s Self) InPool(v *corev1.PersistentVolume, pool Pool) bool {
	return home(v, ScopeNode, s.Node) && v.Labels[PoolLabel] == pool.Name && path.Dir(PathOf(v)) == pool.Path
}

// unlabelled: the record's own object, which no daemon of this node watches. A backup program, a
// policy or a hand took the labels off, or another node's name is in them.
func (f RecordFacts) unlabelled() bool {
	v := f.Volume
	if v == nil || f.Record.Replaced != "" || !f.made() || f.elsewhere() {
		return false
	}
	if home(v, f.Scope, f.Node) || inherited(v, f.Scope) {
		return false
	}
	by, ref := v.Annotations[ProvisionedBy], v.Spec.ClaimRef
	ofClaim := ref != nil && ref.UID != "" && string(ref.UID) == f.Record.ClaimUID
	return (by == "" || f.Serves(by)) && (ofClaim || path.Base(PathOf(v)) == f.Record.Directory)
}

func (f RecordFacts) labelsMissing() Verdict {
	want := ScopeLabel + "=" + f.Scope
	if ofOneNode(f.Scope) {
		want = NodeLabel + "=" + NodeLabelValue(f.Node)
	}
	return Verdict{Action: Keep, Reason: ReasonLabelsMissing, Message: fmt.Sprintf(
		"node %s has the directory of this volume, and its daemon does not watch the object, "+
			"which has no label %s: it is neither removed nor expanded", f.Node, want)}
}

// elsewhere: this node made a directory for a claim, and another node made the claim's volume.
// Label and affinity of the object agree on that, and the affinity cannot be changed; the record is
// this node's own. Of an object that was adopted they say nothing: neither node made the volume,
// and a call that lost to the other node's may have left the record.
func (f RecordFacts) elsewhere() bool {
	labelled := f.Volume.Labels[NodeLabel]
	named := slices.ContainsFunc(append([]string{f.Node}, f.Former...), func(name string) bool { return labelled == NodeLabelValue(name) })
	if f.Volume.Annotations[AdoptedAnnotation] != "" {
		return false
	}
	return ofOneNode(f.Scope) && f.Record.Node == f.Node && labelled != "" && !named &&
		f.NodeLabels != nil && HasAffinity(f.Volume) && !SelectsNode(f.Volume.Spec.NodeAffinity.Required, f.Node, f.NodeLabels)
}

// made: this node made it, and not another one that has the same filesystem mounted, or had this
// disk.
func (f RecordFacts) made() bool {
	return !ofOneNode(f.Scope) || NodeNamed(f.Record.Node, f.Node, f.Former)
}

// NodeNamed reports whether the name that a record or a marker has is one of this node's. One
// without a name was written before names were.
func NodeNamed(name, node string, former []string) bool {
	return name == "" || name == node || slices.Contains(former, name)
}

// wanted: the claim, by UID, still waits for this node, or is bound to an object of this name that
// was lost. One that was given to another node meanwhile does not want it; and one that waits does
// not want what is half emptied, but a volume that is made anew.
func (f RecordFacts) wanted() bool {
	if f.Volume != nil || f.Claim == nil || string(f.Claim.UID) != f.Record.ClaimUID {
		return false
	}
	if bound := f.Claim.Spec.VolumeName == f.Record.PV; bound || f.Record.Place == record.Emptying {
		return bound
	}
	return f.KeepClaim(f.Claim) ||
		f.shared() && f.KeepClaimOfAll(f.Claim)
}

// shared: whatever other nodes have to do with the volume, its directory is this one.
func (f RecordFacts) shared() bool { return f.Scope == ScopeShared }
