package plan

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// A clone is a claim whose source is another claim of its namespace. It is made where that claim's
// volume is: the daemon of that node writes its name on the clone as soon as it sees it, also on
// one that waits for a consumer, so that the scheduler follows. A node that the scheduler chose
// before gives the clone back.

// How a pool's volumes are cloned, as spelt in the configuration. "" is ClonesOff.
const (
	ClonesOff     = "off"
	ClonesReflink = "reflink" // blocks are shared until they are written
	ClonesCopy    = "copy"    // data is copied
)

// ClonesVolumes reports whether the pool makes clones.
func (p Pool) ClonesVolumes() bool { return p.Clones == ClonesReflink || p.Clones == ClonesCopy }

// SourceFacts is what is known of the claim that a clone is to be made of.
type SourceFacts struct {
	Claim  *corev1.PersistentVolumeClaim // read from the API just now, nil: there is none of that name
	Volume *corev1.PersistentVolume      // that the claim is bound to, nil: there is none, or it was not asked for
	Asked  bool                          // the volume was looked for
	Taken  *SnapshotFacts                // of a claim that is made from a snapshot, in place of all else; nil of another
}

// IsClone reports whether a claim is to be made from another claim.
func IsClone(c *corev1.PersistentVolumeClaim) bool { return ofClaim(sourceOf(c)) }

func ofClaim(from *corev1.TypedObjectReference) bool {
	return from != nil && from.Kind == "PersistentVolumeClaim" && (from.APIGroup == nil || *from.APIGroup == "")
}

// SourceOfCopy is the name of the claim or the snapshot that a copy is made of.
func SourceOfCopy(c *corev1.PersistentVolumeClaim) string { return sourceOf(c).Name }

// SourceMatters reports whether a decision depends on SourceFacts: the claim is a copy, it may be
// this node's to make, and nothing else speaks against that.
func SourceMatters(f ClaimFacts) bool {
	copies := IsClone(f.Claim) && f.Pool.ClonesVolumes() || IsRestore(f.Claim) && f.Pool.TakesSnapshots()
	return copies && f.Class != nil && f.Refusal == nil && f.Claim.Spec.VolumeName == "" && f.Claim.DeletionTimestamp == nil &&
		(f.chosen() == "" || f.chosen() == f.Node)
}

// SourceVolumeMatters reports whether a volume that is not this node's is asked for: of a clone
// that has no node yet, the node that has the volume is left to take it first.
func SourceVolumeMatters(f ClaimFacts) bool {
	return f.chosen() == f.Node || f.Age >= preferenceDelay
}

// TakesClones reports whether copies of a class that waits for a consumer are taken before the
// scheduler chose a node.
func (s Self) TakesClones(class *storagev1.StorageClass) bool {
	return WaitsForConsumer(class) && s.Serves(class.Provisioner) && !strings.HasPrefix(class.Provisioner, "kubernetes.io/")
}

// openCopy reports whether a claim is a copy that has no node and that no provisioner was asked
// for.
func openCopy(c *corev1.PersistentVolumeClaim) bool {
	return IsCopy(c) && Chosen(c) == "" && askedProvisioner(c) == ""
}

// cloneRules are the rules about the source of a clone: the first one that applies decides.
var cloneRules = []requestRule{
	otherNamespace, scopeOfClone, clonesOff, sourceUnknown, sourceMissing, sourceGoing, sourceUnbound, sourceElsewhere, sourceForeign, otherPool, smallerThanSource,
}

// cloneRefused applies cloneRules.
func cloneRefused(f RequestFacts) (Refusal, bool) {
	if !ofClaim(f.Request.Source) {
		return Refusal{}, false
	}
	return ofSource(cloneRules, f, "claim")
}

// ofSource is what rules about the source of a copy say, with its name. kind is what it is.
func ofSource(rules []requestRule, f RequestFacts, kind string) (Refusal, bool) {
	r, refused := First(rules, f)
	r.Message = fmt.Sprintf("dataSource: %s %s: %s", kind, words.Quoted(f.Request.Source.Name), r.Message)
	return r, refused
}

// source is the claim that is cloned, and its volume: empty objects where there are none.
func (f RequestFacts) source() (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	claim, volume := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
	if f.From != nil && f.From.Claim != nil {
		claim = f.From.Claim
	}
	if f.From != nil && f.From.Volume != nil {
		volume = f.From.Volume
	}
	return claim, volume
}

func otherNamespace(f RequestFacts) (Refusal, bool) {
	var named *string
	if f.Request.Source != nil {
		named = f.Request.Source.Namespace
	}
	return Refusal{Reason: ReasonDataSource, Message: "it is named with a namespace, and only what is of the same namespace is copied"},
		named != nil && *named != "" && *named != f.Request.Namespace
}

func scopeOfClone(f RequestFacts) (Refusal, bool) {
	return Refusal{Reason: ReasonDataSource, Message: fmt.Sprintf("pool %s has scope %s, and volumes of one node alone are copied; use an empty claim and copy the data", f.Pool.Name, f.Pool.Scope)},
		!f.Pool.OfOneNode()
}

func clonesOff(f RequestFacts) (Refusal, bool) {
	return Refusal{Reason: ReasonDataSource, Message: fmt.Sprintf("pool %s makes no clones (clones); use an empty claim and copy the data", f.Pool.Name)},
		!f.Pool.ClonesVolumes()
}

// sourceUnknown is of a node that does not look after the clone.
func sourceUnknown(f RequestFacts) (Refusal, bool) {
	return Refusal{Help: ByNode, Reason: ReasonSource, Message: "its volume is not this node's"}, f.From == nil
}

func sourceMissing(f RequestFacts) (Refusal, bool) {
	return Refusal{Help: ByItself, Reason: ReasonSource, After: retryAfter, Message: "the namespace has no claim of this name"},
		f.From != nil && f.From.Claim == nil
}

func sourceGoing(f RequestFacts) (Refusal, bool) {
	claim, _ := f.source()
	return Refusal{Help: ByItself, Reason: ReasonSource, After: retryAfter, Message: "it is being deleted"}, claim.DeletionTimestamp != nil
}

func sourceUnbound(f RequestFacts) (Refusal, bool) {
	claim, _ := f.source()
	return Refusal{Help: ByItself, Reason: ReasonSource, After: sourceAgain, Message: "it has no volume yet"},
		claim.Spec.VolumeName == "" || claim.Status.Phase != corev1.ClaimBound
}

// sourceElsewhere: a volume that is not known here is another node's.
func sourceElsewhere(f RequestFacts) (Refusal, bool) {
	_, v := f.source()
	if v.Name == "" && f.From != nil && f.From.Asked {
		return Refusal{Help: ByItself, Reason: ReasonSource, After: retryAfter, Message: "its volume does not exist"}, true
	}
	message := "its volume is not this node's"
	if v.Labels[NodeLabel] != "" {
		message = "its volume is on node " + words.Name(v.Labels[NodeLabel])
	}
	return Refusal{Help: ByNode, Reason: ReasonSource, Message: message},
		v.Name == "" || v.Labels[PoolLabel] != "" && ScopeOf(v) == ScopeNode && !home(v, f.Pool.Scope, f.Node)
}

func sourceForeign(f RequestFacts) (Refusal, bool) {
	claim, v := f.source()
	bound := v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID == claim.UID
	return Refusal{Reason: ReasonSource, Message: fmt.Sprintf("its volume %s was not made by this provisioner for one node", words.Name(v.Name))},
		v.Labels[PoolLabel] == "" || ScopeOf(v) != ScopeNode || !bound || !f.Serves(v.Annotations[ProvisionedBy])
}

func otherPool(f RequestFacts) (Refusal, bool) {
	_, v := f.source()
	of := v.Labels[PoolLabel]
	return Refusal{Reason: ReasonSource, Message: fmt.Sprintf("its volume is in pool %s, and the clone's class leads to pool %s; use a class of the same pool", words.Name(of), f.Pool.Name)},
		of != f.Pool.Name
}

func smallerThanSource(f RequestFacts) (Refusal, bool) {
	_, v := f.source()
	of := SizeOf(v)
	return Refusal{Reason: ReasonSource, Message: fmt.Sprintf("its volume has %s, and the clone requests %s: request as much or more",
		words.Name(of.String()), words.Name(f.Request.Size.String()))}, Exceeds(of, f.Request.Size)
}

// sourceAfter is when a refused claim is looked at again. A clone is looked at less often the
// longer it waits for its source: each look is a request of each node.
func (f ClaimFacts) sourceAfter(r Refusal) time.Duration {
	if r.Reason != ReasonSource {
		return r.After
	}
	return max(r.After, min(f.Age/10, sourceRarely))
}

// sourceRarely is how long a clone is left alone whose source was not there for long.
const sourceRarely = time.Minute

// sourceHere: a copy for which nothing speaks against this node belongs to it, as its source does.
func sourceHere(f ClaimFacts) (Verdict, bool) {
	return Verdict{Action: Assign}, IsCopy(f.Claim) && f.chosen() == ""
}

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
		of.String(), words.Name(f.Request.Size.String()))}, Exceeds(*of, f.Request.Size)
}
