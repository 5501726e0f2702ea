package plan

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

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
		words.Name(of.String()), words.Name(f.Request.Size.String()))}, f.Request.Size.Cmp(of) < 0
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
