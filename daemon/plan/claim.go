package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/words"
)

// Action is what a verdict asks for.
type Action string

// Actions for a claim.
const (
	Ignore    Action = "ignore"    // nothing to do, nothing to say
	Wait      Action = "wait"      // say why, and look again when the pool or the claim changes
	Refuse    Action = "refuse"    // say why; only a change of the claim or its class can help
	Release   Action = "release"   // say why, and give the claim back for another node to take
	Assign    Action = "assign"    // write this node's name on the claim, then decide again
	Provision Action = "provision" // make the volume
)

// Verdict is a decision about a claim. An empty Reason means that there is nothing to tell anybody.
type Verdict struct {
	Action  Action
	Reason  string
	Message string
	After   time.Duration // look again after this long; 0: only when something changes
}

// ClaimFacts is everything that a decision about a claim depends on.
type ClaimFacts struct {
	Self
	Claim      *corev1.PersistentVolumeClaim
	Class      *storagev1.StorageClass  // nil: the class does not exist, or is not ours
	ClassOf    string                   // of a class that is not ours: its provisioner, "" if it does not exist
	Volume     *corev1.PersistentVolume // the volume of this claim's derived name, nil if there is none
	NodeLabels map[string]string        // nil: the cluster does not know this node
	Nodes      int                      // that the cluster has
	Pool       Pool                     // what Resolve answered
	Refusal    *Refusal
	Closed     string        // why the pool takes no work, "" if it is open
	Held       bool          // it is closed because another daemon of this host works in it
	Leads      bool          // this daemon works in the pool: always, but in one of scope shared
	Silent     bool          // nor does it speak for those that cannot
	Free       uint64        // bytes that new volumes may take
	Taken      int           // Immediate claims that this node took lately
	Backlog    time.Duration // how long the Immediate claims that came before this one keep the API server busy
	Inquiry    *Inquiry      // nil: the API server was not asked
	Lag        time.Duration // by which other nodes' writes came too late lately to be seen before this node's turn
	Age        time.Duration // since this daemon first saw the claim as it is: undecided, or with this node chosen
}

type claimRule func(ClaimFacts) (Verdict, bool)

// claimRules is the specification: the first rule that applies decides. What concerns nobody here
// comes first, then what no node could provide, then what this node cannot, then the doing.
var claimRules = []claimRule{
	beingDeleted, alreadyBound, notOurs, otherNode, alreadyProvisioned, notLeading,
	classMissing, classRefused, populated, blockMode, accessMode, dataSource, selector, attributesClass,
	topology, nodeUnknown, badName, poolInUse, poolClosed, tooLarge,
	nobodyChosen, notYetAssigned, notOurTurn, undecided,
}

// ForClaim decides what this node does about a claim.
func ForClaim(f ClaimFacts) Verdict {
	for _, rule := range claimRules {
		if v, applies := rule(f); applies {
			return v
		}
	}
	return Verdict{Action: Provision}
}

// KeepClaim reports whether a claim may concern this node, from the claim alone: what it refuses is
// forgotten at once, so that memory does not grow with the cluster's claims.
func (s Self) KeepClaim(c *corev1.PersistentVolumeClaim) bool {
	if c.Spec.VolumeName != "" || c.DeletionTimestamp != nil {
		return false
	}
	if asked := askedProvisioner(c); asked != "" && !s.Serves(asked) {
		return false
	}
	if named := c.Annotations[ProvisionOnNode]; named != "" {
		return named == s.Node
	}
	selected := c.Annotations[SelectedNode]
	return askedProvisioner(c) != "" && (selected == "" || selected == s.Node)
}

// KeepClaimOfAll is KeepClaim for a claim whose class leads to a pool that is OfAllNodes: every claim
// concerns this node until it has its volume, whichever node was chosen for it.
func (s Self) KeepClaimOfAll(c *corev1.PersistentVolumeClaim) bool {
	return c.Spec.VolumeName == "" && c.DeletionTimestamp == nil && s.Serves(askedProvisioner(c))
}

// VolumeName is the name of a claim's volume in this and every other external provisioner.
func VolumeName(c *corev1.PersistentVolumeClaim) string { return "pvc-" + string(c.UID) }

func askedProvisioner(c *corev1.PersistentVolumeClaim) string {
	if p := c.Annotations[StorageProvisioner]; p != "" {
		return p
	}
	return c.Annotations[StorageProvisionerBeta]
}

func waitsForConsumer(class *storagev1.StorageClass) bool {
	return class != nil && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// nodeOpen: no node has been chosen for the claim, or one that left it alone.
func (f ClaimFacts) nodeOpen() bool { return f.chosen() == "" || f.LeftAlone() }

// LeftAlone reports whether another node took an Immediate claim and did nothing for so long that this one may
// take it over.
//
// Where the other node is only slow, both make a directory, and one of them a volume object: the object is
// named after the claim, and the directory of the node that comes too late goes by its record (ForRecord).
func (f ClaimFacts) LeftAlone() bool {
	if f.chosen() == "" || f.chosen() == f.Node || f.Inquiry == nil || !f.Pool.ofOneNode() {
		return false
	}
	_, decided := f.ofOther()
	return !decided
}

func (f ClaimFacts) chosen() string { return Chosen(f.Claim) }

// Chosen is the node that has been chosen for a claim, "" for none. The node that the claim's author named
// outranks the one that the scheduler selected; the scheduler follows the volume's affinity.
func Chosen(c *corev1.PersistentVolumeClaim) string {
	if node := c.Annotations[ProvisionOnNode]; node != "" {
		return node
	}
	return c.Annotations[SelectedNode]
}

func (f ClaimFacts) otherNodes() bool { return f.Nodes > 1 }

// cannot is the verdict of a rule that speaks of this node alone. A claim that was given to this node
// and may go elsewhere is given back. A claim that nobody took yet is left to the others for a
// while before this node complains: one of them probably takes it.
func (f ClaimFacts) cannot(reason, message string) (Verdict, bool) {
	v := Verdict{Action: Wait, Reason: reason, Message: "node " + f.Node + ": " + message, After: retryAfter}
	switch {
	case f.Pool.Scope == ScopeShared: // no node is better than another
	case f.LeftAlone(): // others probably can, and look at it by turns
		if v.After = inquireAgain; f.Age < inquireAgain {
			v.Reason, v.Message = "", ""
		}
	case f.chosen() != "" && f.chosen() != f.Node: // we would have helped out: the chosen node says why it cannot
		v.Reason, v.Message = "", ""
	case !f.otherNodes() || f.Claim.Annotations[ProvisionOnNode] == f.Node:
	case f.Claim.Annotations[SelectedNode] == f.Node:
		v.Action, v.After = Release, 0
	case f.nodeOpen() && f.Age < patience+f.Backlog:
		v = Verdict{Action: Wait, After: patience + f.Backlog - f.Age}
	}
	return v, true
}

const (
	retryAfter = 30 * time.Second
	patience   = 10 * time.Second
)

func beingDeleted(f ClaimFacts) (Verdict, bool) {
	return Verdict{Action: Ignore}, f.Claim.DeletionTimestamp != nil
}

func alreadyBound(f ClaimFacts) (Verdict, bool) {
	return Verdict{Action: Ignore}, f.Claim.Spec.VolumeName != ""
}

// notOurs: a claim without the annotation is ours only where kube-controller-manager waits for a
// node that the claim already names (CONTRACTS: provisionOnNode with WaitForFirstConsumer).
func notOurs(f ClaimFacts) (Verdict, bool) {
	asked := askedProvisioner(f.Claim)
	if asked == "" && f.Claim.Annotations[ProvisionOnNode] != "" && waitsForConsumer(f.Class) {
		asked = f.Class.Provisioner
	}
	return Verdict{Action: Ignore}, !f.Serves(asked)
}

// otherNode: what another node was chosen for is not ours. A volume of scope every-node is as good
// from any node, so it is only left to the chosen one for a while: that one may have no daemon, and
// as long as the claim is not bound the scheduler lets its pods run nowhere.
func otherNode(f ClaimFacts) (Verdict, bool) {
	node := f.chosen()
	if node == "" || node == f.Node {
		return Verdict{}, false
	}
	switch f.Pool.Scope {
	case ScopeShared:
		return Verdict{}, false
	case ScopeEveryNode:
		wait := takeOverAfter + Turn(string(f.Claim.UID), f.Node, f.Nodes, publishSpan) - f.Age
		return Verdict{Action: Wait, After: wait}, wait > 0
	default:
		return f.ofOther()
	}
}

// notLeading: of the daemons that have a shared pool, one makes its volumes, whichever node was chosen
// for the claim, and the others say nothing. But the node that a claim names has to write its name on
// it, or nobody would be asked for it (notYetAssigned).
func notLeading(f ClaimFacts) (Verdict, bool) {
	if f.Pool.Scope != ScopeShared || !f.Silent {
		return Verdict{}, false
	}
	if v, assign := notYetAssigned(f); assign {
		return v, true
	}
	return Verdict{Action: Ignore}, true
}

func alreadyProvisioned(f ClaimFacts) (Verdict, bool) {
	done := f.Volume != nil && f.Volume.DeletionTimestamp == nil && f.Volume.Spec.ClaimRef != nil && f.Volume.Spec.ClaimRef.UID == f.Claim.UID
	return Verdict{Action: Ignore}, done
}

func classMissing(f ClaimFacts) (Verdict, bool) {
	message := fmt.Sprintf("storage class %s does not exist", words.Quoted(ClassName(f.Claim)))
	if f.ClassOf != "" {
		message = fmt.Sprintf("storage class %s belongs to provisioner %s now, and the claim is for %s",
			words.Quoted(ClassName(f.Claim)), words.Quoted(f.ClassOf), words.Quoted(askedProvisioner(f.Claim)))
	}
	return Verdict{Action: Wait, Reason: ReasonClassNotFound, Message: message}, f.Class == nil
}

func blockMode(f ClaimFacts) (Verdict, bool) {
	mode := f.Claim.Spec.VolumeMode
	return Verdict{Action: Refuse, Reason: ReasonBlockMode, Message: "volumeMode Block: this provisioner makes directories, not block devices; use volumeMode Filesystem"},
		mode != nil && *mode == corev1.PersistentVolumeBlock
}

var nodeAccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteOncePod}

// accessMode: a volume of one node's disk is shared by the pods of that node, which in a cluster of one node are
// all there are. A node that joins later cannot run them; the volume's affinity says so to the scheduler.
func accessMode(f ClaimFacts) (Verdict, bool) {
	if f.Pool.OfAllNodes() || !f.otherNodes() {
		return Verdict{}, false
	}
	for _, mode := range f.Claim.Spec.AccessModes {
		if !slices.Contains(nodeAccessModes, mode) {
			return Verdict{Action: Refuse, Reason: ReasonAccessMode,
				Message: fmt.Sprintf("access mode %s: a volume of this class is on one node's disk; use ReadWriteOnce or ReadWriteOncePod", mode)}, true
		}
	}
	return Verdict{}, false
}

// populated: the populator makes a claim of its own, fills its volume and has the volume bound to this claim
// (KEP-1495; lib-volume-populator).
func populated(f ClaimFacts) (Verdict, bool) {
	if !f.populators() {
		return Verdict{}, false
	}
	from := f.Claim.Spec.DataSourceRef
	return Verdict{Action: Wait, Reason: ReasonPopulator,
		Message: fmt.Sprintf("waits for the populator of %.63q %.63q, which makes the volume and binds it", from.Kind, from.Name)}, true
}

// populators reports whether the claim's volume comes from a volume populator: its source is neither a claim nor
// a snapshot.
func (f ClaimFacts) populators() bool {
	from := f.Claim.Spec.DataSourceRef
	if from == nil {
		return false
	}
	group := ""
	if from.APIGroup != nil {
		group = *from.APIGroup
	}
	return !(group == "" && from.Kind == "PersistentVolumeClaim" || group == "snapshot.storage.k8s.io" && from.Kind == "VolumeSnapshot")
}

func dataSource(f ClaimFacts) (Verdict, bool) {
	return Verdict{Action: Refuse, Reason: ReasonDataSource, Message: "dataSource: a volume cannot be made from a snapshot or another claim here; use an empty claim and copy the data"},
		f.Claim.Spec.DataSource != nil || f.Claim.Spec.DataSourceRef != nil
}

func selector(f ClaimFacts) (Verdict, bool) {
	return Verdict{Action: Refuse, Reason: ReasonSelector, Message: "selector: a claim that selects existing volumes by label is not provisioned; remove spec.selector"},
		f.Claim.Spec.Selector != nil
}

// attributesClass: the binder wants the volume to have the claim's VolumeAttributesClass (pkg/controller/volume/
// persistentvolume, checkVolumeSatisfyClaim), and the API server takes one on CSI volumes alone
// (pkg/apis/core/validation, ValidatePersistentVolumeSpec). An empty name is none.
func attributesClass(f ClaimFacts) (Verdict, bool) {
	name := f.Claim.Spec.VolumeAttributesClassName
	if name == nil || *name == "" {
		return Verdict{}, false
	}
	return Verdict{Action: Refuse, Reason: ReasonAttributesClass, Message: fmt.Sprintf(
		"volumeAttributesClassName %s: only CSI volumes can have one, and Kubernetes would never bind this claim to another; use a claim without it", words.Quoted(*name))}, true
}

// classRefused: an unknown pool is this node's trouble, another node may have it; a parameter that
// nobody knows is everybody's.
func classRefused(f ClaimFacts) (Verdict, bool) {
	switch {
	case f.Refusal == nil:
		return Verdict{}, false
	case f.Refusal.Reason == ReasonUnknownPool:
		return f.cannot(f.Refusal.Reason, f.Refusal.Message)
	default:
		return Verdict{Action: Refuse, Reason: f.Refusal.Reason, Message: f.Refusal.Message}, true
	}
}

func nodeUnknown(f ClaimFacts) (Verdict, bool) {
	if f.NodeLabels[HostnameLabel] != "" || f.Pool.Scope == ScopeShared {
		return Verdict{}, false
	}
	message := "the cluster has no node of this name"
	if f.NodeLabels != nil {
		message = "the Node object has no label " + HostnameLabel
	}
	return Verdict{Action: Wait, Reason: ReasonNodeNotFound, Message: "node " + f.Node + ": " + message, After: retryAfter}, true
}

// topology: a volume that every node reaches is in every topology.
func topology(f ClaimFacts) (Verdict, bool) {
	if f.Pool.Scope == ScopeShared || f.NodeLabels == nil || len(f.Class.AllowedTopologies) == 0 || slices.ContainsFunc(f.Class.AllowedTopologies, f.matches) {
		return Verdict{}, false
	}
	return f.cannot(ReasonTopology, "class "+f.Class.Name+": allowedTopologies do not include this node")
}

func (f ClaimFacts) matches(term corev1.TopologySelectorTerm) bool {
	for _, want := range term.MatchLabelExpressions {
		if value, has := f.NodeLabels[want.Key]; !has || !slices.Contains(want.Values, value) {
			return false
		}
	}
	return true
}

func badName(f ClaimFacts) (Verdict, bool) {
	if f.Pool.Directory == nil {
		return Verdict{}, false // of no pool
	}
	_, err := f.Pool.Directory(VolumeName(f.Claim), f.Claim.Namespace, f.Claim.Name)
	if err == nil {
		return Verdict{}, false
	}
	return f.cannot(ReasonBadName, "pool "+f.Pool.Name+": "+err.Error())
}

// poolInUse: the other daemon may be one of this node, too, and is then about to provision the claim:
// it is not taken out of its hands.
func poolInUse(f ClaimFacts) (Verdict, bool) {
	return Verdict{Action: Wait, Reason: ReasonPoolInUse, After: retryAfter, Message: "node " + f.Node + ": pool " + f.Pool.Name + ": " + f.Closed}, f.Held
}

func poolClosed(f ClaimFacts) (Verdict, bool) {
	if f.Closed == "" {
		return Verdict{}, false
	}
	return f.cannot(ReasonPoolClosed, "pool "+f.Pool.Name+": "+f.Closed)
}

func tooLarge(f ClaimFacts) (Verdict, bool) {
	want := requested(f.Claim)
	if fits(want, f.Free) {
		return Verdict{}, false
	}
	return f.cannot(ReasonNotEnoughSpace, fmt.Sprintf("pool %s: the claim requests %s, and %s is available for new volumes", f.Pool.Name, words.Name(want.String()), words.Size(f.Free)))
}

// nobodyChosen: a WaitForFirstConsumer claim that lost its node (some node gave it back) waits for
// the scheduler.
func nobodyChosen(f ClaimFacts) (Verdict, bool) {
	return Verdict{Action: Ignore}, waitsForConsumer(f.Class) && f.nodeOpen()
}

// notYetAssigned: kube-controller-manager asks nobody for a WaitForFirstConsumer claim before
// selected-node is set, so the node that the claim names sets it.
func notYetAssigned(f ClaimFacts) (Verdict, bool) {
	a := f.Claim.Annotations
	if f.Pool.Scope == ScopeShared && a[SelectedNode] != "" {
		return Verdict{}, false // any node will do
	}
	return Verdict{Action: Assign}, waitsForConsumer(f.Class) && a[ProvisionOnNode] == f.Node && a[SelectedNode] != f.Node
}

// notOurTurn: any node may publish an Immediate claim of scope every-node, and one should.
func notOurTurn(f ClaimFacts) (Verdict, bool) {
	wait := Turn(string(f.Claim.UID), f.Node, f.Nodes, publishSpan) - f.Age
	return Verdict{Action: Wait, After: wait}, f.Pool.Scope == ScopeEveryNode && f.nodeOpen() && wait > 0
}

// undecided: an Immediate claim belongs to the daemon that writes its node's name on it first.
func undecided(f ClaimFacts) (Verdict, bool) {
	if !f.nodeOpen() || f.Pool.OfAllNodes() {
		return Verdict{}, false
	}
	if wait := takeTurn(f) - f.Age; wait > 0 && !f.LeftAlone() {
		return Verdict{Action: Wait, After: wait}, true
	}
	return Verdict{Action: Assign}, true
}
