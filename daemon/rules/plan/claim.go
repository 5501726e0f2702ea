package plan

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
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

// Verdict is a decision about a claim. Without a Reason there is nothing to report.
type Verdict struct {
	Action  Action
	Reason  string
	Message string
	After   time.Duration // look again after this long; 0: only when something changes
}

// ClaimFacts is everything that a decision about a claim depends on. ForClaim fills in Request.
type ClaimFacts struct {
	RequestFacts
	Claim   *corev1.PersistentVolumeClaim
	Class   *storagev1.StorageClass  // nil: the class does not exist, or is not ours
	ClassOf string                   // of a class that is not ours: its provisioner, "" if it does not exist
	Volume  *corev1.PersistentVolume // the volume of this claim's derived name, nil if there is none
	Silent  bool                     // the pool is shared, and this daemon is neither its leader nor its reporter
	Taken   int                      // Immediate claims that this node took lately
	Backlog time.Duration            // how long the Immediate claims that came before this one keep the API server busy
	Inquiry *Inquiry                 // nil: the API server was not asked
	Lag     time.Duration            // by which other nodes' writes came too late lately to be seen before this node tried
	Age     time.Duration            // since this daemon first saw the claim as it is: undecided, or with this node chosen
}

type claimRule func(ClaimFacts) (Verdict, bool)

// concernRules and assignmentRules are the protocol between the claim's binder and the daemons of
// the nodes; the rules about what the claim requests (requestRules) stand between the two. In each
// list the first rule that applies decides.
var (
	concernRules    = []claimRule{beingDeleted, alreadyBound, notOurs, otherNode, alreadyProvisioned, notLeading, classMissing}
	assignmentRules = []claimRule{sourceHere, noNodeChosen, notYetAssigned, notOurTurn, unassigned}
)

// ForClaim decides what this node does about a claim: whether the claim concerns it, whether there
// can be a volume here, and whether this node is to make it.
func ForClaim(f ClaimFacts) Verdict {
	f.Request = requestOf(f.Claim, f.Class)
	v := f.decide()
	if OnlySelected(f.Claim) && v.Action != Provision && (v.Action != Assign || !openCopy(f.Claim)) {
		ignored := Verdict{Action: Ignore} // the claim is refused or given back when it was asked for: a write now could collide with that one
		if v.Action == Wait && f.taken().Record != nil {
			ignored.After = v.After // the snapshot is here, and soon it is ready
		}
		return ignored
	}
	return v
}

func (f ClaimFacts) decide() Verdict {
	if v, applies := First(concernRules, f); applies {
		return v
	}
	if r, refused := ForRequest(f.RequestFacts); refused {
		return f.refused(r)
	}
	if v, applies := First(assignmentRules, f); applies {
		return v
	}
	return Verdict{Action: Provision}
}

// First returns what the first rule of a list that applies says, and whether one does. The list is
// the specification: each rule counts before those below it.
func First[F, V any, R ~func(F) (V, bool)](rules []R, f F) (v V, applies bool) {
	for _, rule := range rules {
		if v, applies = rule(f); applies {
			return v, true
		}
	}
	return *new(V), false
}

// Decide is First with what is said where no rule applies.
func Decide[F, V any, R ~func(F) (V, bool)](rules []R, f F, otherwise V) V {
	if v, applies := First(rules, f); applies {
		return v
	}
	return otherwise
}

// refused is what becomes of a claim whose request is refused.
func (f ClaimFacts) refused(r Refusal) Verdict {
	switch r.Help {
	case ByNode:
		return f.cannot(r.Reason, r.Message)
	case ByItself:
		return Verdict{Action: Wait, Reason: r.Reason, Message: r.Message, After: f.sourceAfter(r)}
	default:
		return Verdict{Action: Refuse, Reason: r.Reason, Message: r.Message}
	}
}

// KeepClaim reports whether a claim may concern this node, from the claim alone: what it refuses is
// forgotten at once, so that memory does not grow with the cluster's claims.
func (s Self) KeepClaim(c *corev1.PersistentVolumeClaim) bool {
	if c.Spec.VolumeName != "" || c.DeletionTimestamp != nil || !s.mayServe(c) {
		return false
	}
	if named := c.Annotations[ProvisionOnNode]; named != "" {
		return named == s.Node
	}
	switch c.Annotations[SelectedNode] {
	case s.Node:
		return true // of one that is OnlySelected the class decides (BySelection)
	case "":
		return askedProvisioner(c) != "" || openCopy(c) // of the latter the class decides (TakesClones)
	default:
		return false
	}
}

// KeepClaimOfAll is KeepClaim for a claim whose class leads to a pool that is OfAllNodes: every
// claim concerns this node until it has its volume, whichever node was chosen for it.
func (s Self) KeepClaimOfAll(c *corev1.PersistentVolumeClaim) bool {
	chosen := askedProvisioner(c) != "" || c.Annotations[SelectedNode] != ""
	return c.Spec.VolumeName == "" && c.DeletionTimestamp == nil && chosen && s.mayServe(c)
}

// mayServe reports whether nothing on a claim itself says that it is another provisioner's.
func (s Self) mayServe(c *corev1.PersistentVolumeClaim) bool {
	if asked := askedProvisioner(c); asked != "" {
		return s.Serves(asked)
	}
	return c.Annotations[MigratedTo] == ""
}

// OnlySelected reports whether kube-controller-manager has asked no provisioner for a claim yet
// (StorageProvisioner), and its author named no node: whose it is, its class alone tells.
func OnlySelected(c *corev1.PersistentVolumeClaim) bool {
	return askedProvisioner(c) == "" && c.Annotations[ProvisionOnNode] == ""
}

// BySelection reports whether claims of a class are provisioned as soon as the scheduler chose
// their node: where that is switched on, those of a class that waits for a consumer.
// kube-controller-manager would ask the class's provisioner for them next, unless that is one of
// its own plugins, whose claims it provisions itself or hands to another provisioner
// (pkg/controller/volume/persistentvolume, provisionClaim).
func (s Self) BySelection(class *storagev1.StorageClass) bool {
	return !s.AwaitRequest && Selectable(class)
}

// Selectable is BySelection wherever it may be switched on.
func Selectable(class *storagev1.StorageClass) bool {
	return WaitsForConsumer(class) && !strings.HasPrefix(class.Provisioner, "kubernetes.io/")
}

// VolumeName is the name of a claim's volume in this and every other external provisioner.
func VolumeName(c *corev1.PersistentVolumeClaim) string { return "pvc-" + string(c.UID) }

func askedProvisioner(c *corev1.PersistentVolumeClaim) string {
	if p := c.Annotations[StorageProvisioner]; p != "" {
		return p
	}
	return c.Annotations[StorageProvisionerBeta]
}

// WaitsForConsumer reports whether a class makes no volume before a pod uses the claim; nil does
// not.
func WaitsForConsumer(class *storagev1.StorageClass) bool {
	return class != nil && class.VolumeBindingMode != nil &&
		*class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// nodeOpen: no node has been chosen for the claim, or one that left it alone.
func (f ClaimFacts) nodeOpen() bool { return f.chosen() == "" || f.LeftAlone() }

// LeftAlone reports whether another node took an Immediate claim and did nothing for so long that
// this one may take it over.
//
// Where the other node is only slow, both make a directory, and one of them a volume object: the
// object is named after the claim, and the directory of the node that comes too late goes by its
// record (ForRecord).
func (f ClaimFacts) LeftAlone() bool {
	if f.chosen() == "" || f.chosen() == f.Node || f.Inquiry == nil || !f.Pool.OfOneNode() {
		return false
	}
	_, decided := f.ofOther()
	return !decided
}

func (f ClaimFacts) chosen() string { return Chosen(f.Claim) }

// Chosen is the node that has been chosen for a claim, "" for none. The node that the claim's
// author named outranks the one that the scheduler selected; the scheduler follows the volume's
// affinity.
func Chosen(c *corev1.PersistentVolumeClaim) string {
	if node := c.Annotations[ProvisionOnNode]; node != "" {
		return node
	}
	return c.Annotations[SelectedNode]
}

// cannot is the verdict where this node lacks what another may have. A claim that was assigned to
// this node and may go elsewhere is released. An unassigned claim is left to the other nodes for a
// while before this node reports the reason: one of them probably takes it.
func (f ClaimFacts) cannot(reason, message string) Verdict {
	v := Verdict{Action: Wait, Reason: reason, Message: "node " + f.Node + ": " + message, After: retryAfter}
	switch {
	case f.Pool.Scope == ScopeShared: // no node is better than another
	case f.LeftAlone(): // others probably can, and look at it at staggered times
		if v.After = inquireAgain; f.Age < inquireAgain {
			v.Reason, v.Message = "", ""
		}
	case f.chosen() != "" && f.chosen() != f.Node: // we would have helped out: the chosen node says why it cannot
		v.Reason, v.Message = "", ""
	case !f.otherNodes() || f.Claim.Annotations[ProvisionOnNode] == f.Node:
	case f.Claim.Annotations[SelectedNode] == f.Node:
		v.Action, v.After = Release, 0
	case f.nodeOpen() && f.Age < preferenceDelay+f.Backlog:
		v = Verdict{Action: Wait, After: preferenceDelay + f.Backlog - f.Age}
	}
	return v
}

const (
	retryAfter      = 30 * time.Second
	preferenceDelay = 10 * time.Second
	sourceAgain     = 5 * time.Second
)

func beingDeleted(f ClaimFacts) (Verdict, bool) {
	return Verdict{Action: Ignore}, f.Claim.DeletionTimestamp != nil
}

func alreadyBound(f ClaimFacts) (Verdict, bool) {
	return Verdict{Action: Ignore}, f.Claim.Spec.VolumeName != ""
}

func notOurs(f ClaimFacts) (Verdict, bool) {
	return Verdict{Action: Ignore}, !f.Serves(f.provisioner())
}

// provisioner is whose a claim is: the provisioner that kube-controller-manager asked for it. Where
// that has asked none, it is the class's, for a claim that names its node, for which it never asks
// (CONTRACTS: provisionOnNode with WaitForFirstConsumer), and for one whose node the scheduler
// chose, for which it asks next: an annotation and an event of its 20 requests a second
// (docs/dev/decisions.md).
func (f ClaimFacts) provisioner() string {
	asked := askedProvisioner(f.Claim)
	switch {
	case asked != "" || f.Class == nil:
	case f.Claim.Annotations[ProvisionOnNode] != "" && WaitsForConsumer(f.Class):
		return f.Class.Provisioner
	case openCopy(f.Claim) && f.TakesClones(f.Class) && f.mayServe(f.Claim):
		return f.Class.Provisioner
	case f.Claim.Annotations[SelectedNode] != "" && f.BySelection(f.Class) && f.mayServe(f.Claim):
		return f.Class.Provisioner
	}
	return asked
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
		wait := takeOverAfter + StaggerDelay(string(f.Claim.UID), f.Node, f.Nodes, publishSpan) - f.Age
		return Verdict{Action: Wait, After: wait}, wait > 0
	default:
		return f.ofOther()
	}
}

// notLeading: of the daemons that have a shared pool, one makes its volumes, whichever node was
// chosen for the claim, and the others say nothing. But the node that a claim names has to write
// its name on it, or no provisioner would be asked for it (notYetAssigned).
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

// noNodeChosen: a WaitForFirstConsumer claim that lost its node (a node released it) waits for
// the scheduler.
func noNodeChosen(f ClaimFacts) (Verdict, bool) {
	return Verdict{Action: Ignore}, WaitsForConsumer(f.Class) && f.nodeOpen()
}

// notYetAssigned: kube-controller-manager asks no provisioner for a WaitForFirstConsumer claim
// before selected-node is set, so the node that the claim names sets it.
func notYetAssigned(f ClaimFacts) (Verdict, bool) {
	a := f.Claim.Annotations
	if f.Pool.Scope == ScopeShared && a[SelectedNode] != "" {
		return Verdict{}, false // any node will do
	}
	return Verdict{Action: Assign}, WaitsForConsumer(f.Class) && a[ProvisionOnNode] == f.Node && a[SelectedNode] != f.Node
}

// notOurTurn: any node may publish an Immediate claim of scope every-node, and one should.
func notOurTurn(f ClaimFacts) (Verdict, bool) {
	wait := StaggerDelay(string(f.Claim.UID), f.Node, f.Nodes, publishSpan) - f.Age
	return Verdict{Action: Wait, After: wait}, f.Pool.Scope == ScopeEveryNode && f.nodeOpen() && wait > 0
}

// unassigned: an Immediate claim belongs to the daemon that writes its node's name on it first.
func unassigned(f ClaimFacts) (Verdict, bool) {
	if !f.nodeOpen() || f.Pool.OfAllNodes() {
		return Verdict{}, false
	}
	if wait := assignDelay(f) - f.Age; wait > 0 && !f.LeftAlone() {
		return Verdict{Action: Wait, After: wait}, true
	}
	return Verdict{Action: Assign}, true
}
