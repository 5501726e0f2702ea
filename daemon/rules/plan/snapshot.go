package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// A snapshot is a VolumeSnapshotContent of the daemon's driver. The snapshot-controller makes the
// object; the daemon of the node that has the volume makes the copy, and then says in the object's
// status that it is ready. Whose a content is, the records say: that of the snapshot, or before
// there is one, that of its volume.

// How snapshots of a pool's volumes are made, as spelt in the configuration. "" is SnapshotsOff.
const (
	SnapshotsOff      = "off"
	SnapshotsLive     = "live"     // files share their blocks with the volume's; each is of one moment, and all together are not
	SnapshotsSnapshot = "snapshot" // all files are of one moment: volumes are subvolumes of a btrfs
	SnapshotsCopy     = "copy"     // data is copied
	SnapshotsPaused   = "paused"   // as live, and once more what changed meanwhile, while the pods stand still
)

// TakesSnapshots reports whether the pool makes snapshots, and volumes from them.
func (p Pool) TakesSnapshots() bool {
	return slices.Contains([]string{SnapshotsLive, SnapshotsPaused, SnapshotsSnapshot, SnapshotsCopy}, p.Snapshots)
}

// PausesFor reports whether the pods of a volume are paused for its snapshot: its class may want
// less than its pool makes.
func (p Pool) PausesFor(class *snapshotapi.Class) bool {
	return p.Snapshots == SnapshotsPaused && class.Parameters[paramConsistency] != SnapshotsLive
}

// Actions for a content, beside Ignore, Wait, Refuse, Provision, Delete, Retain and LetGo.
const (
	Publish Action = "publish" // the snapshot is whole: say that it is ready
)

// ContentFacts is everything that a decision about a VolumeSnapshotContent depends on.
type ContentFacts struct {
	Self
	Content  *snapshotapi.Content
	Class    *snapshotapi.Class // its VolumeSnapshotClass, nil if there is none of the name
	NoClass  string             // why Class could not be read, "" if it could
	Snapshot *record.Record     // of its handle, nil: no pool of this node that could be looked at has one
	Source   *record.Record     // of the volume that it is to be made of, nil: the same
	Pool     Pool               // that has them
	Unread   string             // why a pool of this node could not be looked at, "" if each was
	Shared   bool               // another content, that stays, has the same handle
	Former   []string           // names that this node had before
	Ours     bool               // the object of the volume that it is to be made of says that it is this node's
	Origin   *Origin            // nil: it was not asked for
	Closed   string             // why Pool takes no new work, "" if it does
	Room     capacity.Room      // that Pool has for the snapshot
	Nodes    int                // that the cluster has
	Age      time.Duration      // since this daemon first saw the content as it is: to stay, or to go
}

// Origin is whose the volume is that a snapshot is to be made of, read from the API just now.
type Origin struct {
	Snapshot *snapshotapi.Snapshot         // nil: there is none with the UID that the content names
	Volume   *corev1.PersistentVolume      // nil: there is none
	Claim    *corev1.PersistentVolumeClaim // that Volume is bound to, nil: there is none with its UID
	Promised uint64                        // to the namespace's other snapshots in the pool
}

type contentRule func(ContentFacts) (Verdict, bool)

// The rules about a content that is to go, and about one that is to stay. In each list the first
// rule that applies decides.
var (
	goingRules = []contentRule{
		contentElsewhere, snapshotPutBack, contentUnbound, contentLocked, snapshotShared, snapshotRetained, snapshotDeleted, neverTaken,
	}
	stayingRules = []contentRule{
		contentElsewhere, snapshotPutBack, snapshotLost, contentReady, snapshotWhole, snapshotOfOthers, snapshotsOff, snapshotClassUnread, snapshotClassMissing, snapshotParameters, snapshotSourceGone,
		snapshotPoolClosed, snapshotTooLarge, snapshotOfOtherClaim, snapshotsTooMany,
	}
)

// ForContent decides what this node does about a VolumeSnapshotContent.
func ForContent(f ContentFacts) Verdict {
	rules, otherwise := stayingRules, Verdict{Action: Provision}
	if f.Content.DeletionTimestamp != nil {
		rules, otherwise = goingRules, Verdict{Action: Ignore}
	}
	return Decide(rules, f, otherwise)
}

// NodeOfContent is the node that has a content's snapshot, or is to make it, "" before one has
// taken it.
func NodeOfContent(of *snapshotapi.Content) string { return of.Annotations[NodeLabel] }

// contentElsewhere: another driver's, another node's, or of a pool that cannot be looked at now.
func contentElsewhere(f ContentFacts) (Verdict, bool) {
	known, of := f.Snapshot != nil || f.Source != nil, NodeOfContent(f.Content)
	switch {
	case !f.Serves(f.Content.Spec.Driver), !known && of != "" && of != f.Node:
		return Verdict{Action: Ignore}, true
	case !known && f.Unread != "" && f.toBeTold():
		v := refuseSnapshot("node %s cannot look for it: %s", words.Name(f.Node), f.Unread)
		return Verdict{Action: Wait, Reason: v.Reason, Message: v.Message, After: retryAfter}, true
	case !known && f.Unread != "":
		return Verdict{Action: Wait, After: retryAfter}, true
	}
	return Verdict{}, false
}

// toBeTold reports whether an object waits for what this node, and no other, has to do. What is
// ready stays so, whatever its pool is.
func (f ContentFacts) toBeTold() bool {
	ours := NodeOfContent(f.Content) == f.Node || NodeOfContent(f.Content) == "" && f.Ours
	if f.Content.DeletionTimestamp == nil {
		return ours && !f.Content.Ready()
	}
	return ours && unlocked(f.Content) && slices.Contains(f.Content.Finalizers, snapshotapi.Finalizer)
}

// unlocked reports whether no VolumeSnapshot keeps a content that is being deleted
// (external-snapshotter v8.6.0, pkg/sidecar-controller, shouldDelete).
func unlocked(of *snapshotapi.Content) bool {
	_, going := of.Annotations[snapshotapi.BeingDeleted]
	return going || of.Spec.Source.SnapshotHandle != nil && of.Spec.SnapshotRef.UID == ""
}

// GoesWithData reports, from the content alone, whether it is to go with its snapshot.
func GoesWithData(of *snapshotapi.Content) bool {
	return of.DeletionTimestamp != nil && unlocked(of) && of.Spec.DeletionPolicy == snapshotapi.PolicyDelete
}

// mine reports whether this node has taken the content, under any name that it had.
func (f ContentFacts) mine() bool {
	of := NodeOfContent(f.Content)
	return of != "" && NodeNamed(of, f.Node, f.Former)
}

// ContentHeld is said of a content that this node is to write to, and may not, because another one
// has taken it.
func ContentHeld(f ContentFacts, err error) Verdict {
	return refuseSnapshot("node %s has taken its VolumeSnapshotContent %s, and node %s has the volume or the snapshot: %s",
		words.Name(NodeOfContent(f.Content)), words.Quoted(f.Content.Name), f.Node, err)
}

// snapshotPutBack: its removal was begun, and before the content went its policy changed, or the
// API server was restored to a day on which it was to stay.
func snapshotPutBack(f ContentFacts) (Verdict, bool) {
	why := "it is to stay"
	if f.Content.DeletionTimestamp != nil {
		why = "its deletion policy is " + words.Name(f.Content.Spec.DeletionPolicy) + " now"
	}
	v := Verdict{Action: PutBack, Reason: ReasonPutBack, Message: fmt.Sprintf(
		"node %s: the data of the snapshot was being deleted, and %s; it was restored", f.Node, why)}
	return v, f.Snapshot != nil && f.Snapshot.Place == record.InTrash && !GoesWithData(f.Content)
}

// snapshotLost: a content is ready, and this node, which should have its data, or has its volume,
// has it not. Nothing is written to it, and nothing is made in its place: a claim that was made
// from it would have other data than it was ready with.
func snapshotLost(f ContentFacts) (Verdict, bool) {
	of, what := NodeOfContent(f.Content), ""
	switch {
	case !f.Content.Ready():
	case f.Snapshot != nil && f.Snapshot.Place == record.InPool && of != "" && !f.mine():
		what = fmt.Sprintf("node %s has taken its VolumeSnapshotContent, and the snapshot is on this node", words.Name(of))
	case f.Snapshot != nil && f.Snapshot.Place != record.InPool:
		what = "its directory is " + f.Snapshot.Place.Describe() + "; restore it from a backup"
	case f.Snapshot != nil:
	case f.mine():
		what = "its data is gone from this node, which had it; restore it from a backup"
	case f.Source != nil && f.Source.Place == record.InPool:
		what = fmt.Sprintf("it is said to be ready on node %s, and this node, which has its volume, made none; keep the volume, and make another snapshot", words.Quoted(of))
	}
	return Verdict{Action: Wait, Reason: ReasonSnapshotLost, Message: "node " + f.Node + ": " + what}, what != ""
}

// OfNode reports whether a volume object says that its directory is on this node alone.
func (s Self) OfNode(v *corev1.PersistentVolume) bool {
	return s.Serves(v.Annotations[ProvisionedBy]) && home(v, ScopeNode, s.Node)
}

// contentUnbound: our part in it is done.
func contentUnbound(f ContentFacts) (Verdict, bool) {
	return Verdict{Action: Ignore}, !slices.Contains(f.Content.Finalizers, snapshotapi.Finalizer)
}

// contentLocked: people deleted the content and not its VolumeSnapshot, which keeps it. One that is
// not ready never will be.
func contentLocked(f ContentFacts) (Verdict, bool) {
	v := Verdict{Action: Ignore}
	if !f.Content.Ready() {
		v = refuseSnapshot("its VolumeSnapshotContent %s was deleted; delete the VolumeSnapshot, too, and make another", words.Quoted(f.Content.Name))
	}
	return v, !unlocked(f.Content)
}

// snapshotShared: the data stays with the other content.
func snapshotShared(f ContentFacts) (Verdict, bool) {
	return Verdict{Action: LetGo}, f.Shared && f.Snapshot != nil && !f.Snapshot.Unpublished
}

// snapshotRetained: one that may not be whole is of no use to anybody who would import it. What was
// being removed was put back.
func snapshotRetained(f ContentFacts) (Verdict, bool) {
	whole := f.Snapshot != nil && !f.Snapshot.Unpublished && f.Snapshot.Place == record.InPool
	return Verdict{Action: Retain, Reason: ReasonRetained}, whole && f.Content.Spec.DeletionPolicy != snapshotapi.PolicyDelete
}

func snapshotDeleted(f ContentFacts) (Verdict, bool) {
	return Verdict{Action: Delete, Reason: ReasonDeleted}, f.Snapshot != nil
}

// neverTaken: nothing was ever ready for the content. The node that has its volume lets it go;
// where none has it any more, one of the others does after a while. What was ready and is in no
// pool of the node that had it any more went with another content of the same handle, or people
// took it.
func neverTaken(f ContentFacts) (Verdict, bool) {
	ready := f.Content.Status != nil && f.Content.Status.SnapshotHandle != nil
	switch {
	case f.Source != nil:
		return Verdict{Action: LetGo}, true
	case ready && NodeOfContent(f.Content) != f.Node:
		return Verdict{}, false
	}
	if wait := silentAfter + StaggerDelay(string(f.Content.UID), f.Node, f.Nodes, silentSpan) - f.Age; wait > 0 {
		return Verdict{Action: Wait, After: wait}, true
	}
	return Verdict{Action: LetGo}, true
}

func contentReady(f ContentFacts) (Verdict, bool) {
	return Verdict{Action: Ignore}, f.Content.Ready() || f.Content.Handle() == ""
}

// snapshotWhole: also one that was imported by its handle. It is said again what was said before an
// API server was restored.
func snapshotWhole(f ContentFacts) (Verdict, bool) {
	whole := f.Snapshot != nil && f.Snapshot.Place == record.InPool && !f.Snapshot.Unpublished
	return Verdict{Action: Publish, Reason: ReasonSnapshotReady}, whole
}

// snapshotOfOthers: neither the volume nor, of a content with a handle, the snapshot is here. Of a
// content that this node has taken no other node says so.
func snapshotOfOthers(f ContentFacts) (Verdict, bool) {
	here, imported := f.Snapshot != nil || f.Source != nil, f.Content.Spec.Source.SnapshotHandle != nil
	if !here && f.mine() {
		return refuseSnapshot("node %s has taken it, and has neither the snapshot nor the volume any more", f.Node), true
	}
	return Verdict{Action: Ignore}, !here || imported
}

func snapshotsOff(f ContentFacts) (Verdict, bool) {
	return refuseSnapshot("pool %s makes no snapshots (snapshots)", f.Pool.Name), !f.Pool.TakesSnapshots()
}

func refuseSnapshot(format string, args ...any) Verdict {
	return Verdict{Action: Refuse, Reason: ReasonSnapshotFailed, After: time.Minute, Message: fmt.Sprintf(format, args...)}
}

func snapshotClassUnread(f ContentFacts) (Verdict, bool) {
	return Verdict{Action: Wait, Reason: ReasonAPIRefused, After: retryAfter, Message: f.NoClass}, f.NoClass != ""
}

func snapshotClassMissing(f ContentFacts) (Verdict, bool) {
	name := "without a name"
	if c := f.Content.Spec.Class; c != nil {
		name = words.Quoted(*c)
	}
	return refuseSnapshot("there is no VolumeSnapshotClass %s", name), f.Class == nil
}

// paramConsistency is the parameter of a VolumeSnapshotClass: the least that its snapshots are to
// be. SnapshotsLive is any pool's but one that copies data, in which a file is of no one moment
// while something writes to it.
const paramConsistency = "consistency"

func snapshotParameters(f ContentFacts) (Verdict, bool) {
	if f.Class == nil {
		return Verdict{}, false
	}
	for _, key := range slices.Sorted(maps.Keys(f.Class.Parameters)) {
		value := f.Class.Parameters[key]
		switch {
		case key == paramConsistency && value == SnapshotsLive && f.Pool.Snapshots == SnapshotsCopy:
			return refuseSnapshot("VolumeSnapshotClass %s: %s: pool %s has snapshots = %q, in which a file that is written to is not of one moment; use a class without it", words.Quoted(f.Class.Name), key, f.Pool.Name, SnapshotsCopy), true
		case key == paramConsistency && (value == SnapshotsLive || value == f.Pool.Snapshots && (value == SnapshotsSnapshot || value == SnapshotsPaused)):
		case key == paramConsistency && (value == SnapshotsSnapshot || value == SnapshotsPaused):
			return refuseSnapshot("VolumeSnapshotClass %s: %s: pool %s has snapshots = %q, and %q takes a pool of that", words.Quoted(f.Class.Name), key, f.Pool.Name, f.Pool.Snapshots, value), true
		case key == paramConsistency:
			return refuseSnapshot("VolumeSnapshotClass %s: %s: %s is not supported; %q, %q and %q are", words.Quoted(f.Class.Name), key, words.Quoted(value), SnapshotsLive, SnapshotsPaused, SnapshotsSnapshot), true
		case key == KubevirtPool && value == f.Pool.Name:
		case key == KubevirtPool:
			return refuseSnapshot(
				"VolumeSnapshotClass %s: %s: %s is not the volume's pool, which is %s",
				words.Quoted(f.Class.Name), key, words.Quoted(value), f.Pool.Name), true
		case !strings.HasPrefix(key, "csi.storage.k8s.io/"): // Kubernetes' own
			return refuseSnapshot("VolumeSnapshotClass %s: unknown parameter %s; %q is known", words.Quoted(f.Class.Name), words.Quoted(key), paramConsistency), true
		}
	}
	return Verdict{}, false
}

func snapshotSourceGone(f ContentFacts) (Verdict, bool) {
	return refuseSnapshot("the volume is not in the pool any more"), f.Source == nil || f.Source.Place != record.InPool
}

func snapshotPoolClosed(f ContentFacts) (Verdict, bool) {
	return Verdict{Action: Wait, Reason: ReasonPoolClosed, After: retryAfter, Message: fmt.Sprintf("pool %s: %s", f.Pool.Name, f.Closed)}, f.Closed != ""
}

// snapshotOfOtherClaim: while the content waited, the volume was given to another claim, whose data
// is not its namespace's. A claim that is younger than the content is another one, too.
func snapshotOfOtherClaim(f ContentFacts) (Verdict, bool) {
	if f.Origin == nil {
		return Verdict{}, false
	}
	o, asked := *f.Origin, f.Content.Spec.SnapshotRef
	if o.Volume == nil || o.Volume.Spec.ClaimRef == nil {
		return refuseSnapshot("the volume has no claim any more; nothing of it is copied"), true
	}
	has := o.Volume.Spec.ClaimRef
	named := o.Snapshot == nil || o.Snapshot.Spec.Source.Claim == nil ||
		*o.Snapshot.Spec.Source.Claim == has.Name
	younger := o.Claim != nil && o.Claim.CreationTimestamp.After(f.Content.CreationTimestamp.Time)
	v := refuseSnapshot("the volume is another claim's than when the snapshot was asked for; " +
		"nothing of it is copied")
	return v, has.Namespace != asked.Namespace || !named || younger
}

// snapshotsTooMany: no ResourceQuota of Kubernetes counts what snapshots take.
func snapshotsTooMany(f ContentFacts) (Verdict, bool) {
	most := f.Pool.SnapshotSpace
	if most == 0 || f.Origin == nil || f.Source == nil {
		return Verdict{}, false
	}
	size, taken := f.Source.Reserved(), f.Origin.Promised
	v := Verdict{Action: Wait, Reason: ReasonNotEnoughSpace, After: time.Minute, Message: fmt.Sprintf(
		"pool %s: the snapshot is promised %s, as its volume, and of %s for all snapshots of a namespace "+
			"(snapshots_per_namespace) %s are promised",
		f.Pool.Name, words.Size(size), words.Size(most), words.Size(taken))}
	return v, f.Snapshot == nil && (taken > most || size > most-taken)
}

// SnapshotsOf is what the snapshots of a namespace are promised together, but for the one with this
// handle.
func SnapshotsOf(namespace, but string, records []record.Record) (promised uint64) {
	for _, r := range records {
		if r.Kind == record.Snapshot && r.Namespace == namespace && r.PV != but && r.Place != record.Nowhere {
			promised += r.Reserved()
		}
	}
	return promised
}

// snapshotTooLarge: a snapshot may come to need as much as its volume.
func snapshotTooLarge(f ContentFacts) (Verdict, bool) {
	if f.Source == nil {
		return Verdict{}, false
	}
	v := Verdict{Action: Wait, Reason: ReasonNotEnoughSpace, After: time.Minute, Message: fmt.Sprintf("pool %s: the snapshot is promised %s, as its volume, and %s is available",
		f.Pool.Name, words.Size(f.Source.Reserved()), words.Size(f.Room.Free))}
	return v, f.Snapshot == nil && f.Source.Reserved() > f.Room.Free
}

// ofSnapshot is ForRecord for a snapshot: without a content only what may not be whole is removed.
// Of a content that is ready and stays nothing more goes, also if its files are going: whose
// removal that was a restored API server has forgotten.
func (f RecordFacts) ofSnapshot() Verdict {
	switch {
	case f.Record.Retained, !f.made(), f.ContentUnknown:
		return Verdict{Action: Keep}
	case f.Record.Place == record.Emptying && !HoldsData(f.Content): // else the content goes first, and then the files
		return Verdict{Action: Finish}
	case f.Content != nil, f.Unsure:
		return Verdict{Action: Keep}
	case f.Record.Unpublished || f.Record.Place == record.Nowhere:
		return Verdict{Action: Undo, Reason: ReasonUnpublishedRemoved}
	default:
		return Verdict{Action: Keep, Reason: ReasonOrphaned}
	}
}

// HoldsData reports whether a content, nil for none, is in the way of what is left of its snapshot
// going: it is ready, or an import, or its finalizer is there yet.
func HoldsData(of *snapshotapi.Content) bool {
	switch {
	case of == nil:
		return false
	case of.DeletionTimestamp != nil:
		return slices.Contains(of.Finalizers, snapshotapi.Finalizer)
	default:
		return of.Ready() || of.Spec.Source.SnapshotHandle != nil
	}
}
