package forget

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// Forget is the action for an object that goes, beside plan.Keep for one that stays and is told of,
// plan.Refuse for one that cannot go yet, and plan.Ignore.
const Forget plan.Action = "forget"

// Reasons of a refused node.
const (
	ReasonNodeReady   = "NodeReady"
	ReasonDaemonFresh = "DaemonFresh"
)

// Annotation is on a claim whose volume's object goes because its node is forgotten; its value is
// that node's name. A finalizer of the same name holds a claim that is deleted until its pods are:
// without it, a call that was cut off in between would leave pods that wait for ever.
const Annotation = "hostpath-provisioner/forgotten"

// FreshFor is for how long after its last write a daemon counts as alive. It renews a lease every
// three seconds; the kubelet of a node that died is noticed after forty.
const FreshFor = time.Minute

// NodeFacts is everything that the decision about a node depends on.
type NodeFacts struct {
	Name   string
	Node   *corev1.Node // nil: the cluster has none of the name
	Signs  []Sign       // of its daemon, as they were first seen
	Later  []Sign       // the same, some seconds later; nil: there was nothing to wait for
	Now    time.Time
	Forced bool // the administrator typed the name once more
}

// Sign is an object that only the daemon of one node writes.
type Sign struct {
	What    string // for a sentence
	Version string // of the object
	Written time.Time
	Renewed bool // every few seconds, as long as its writer lives
}

// nodeRules is the specification of when a node may be forgotten: the first that applies refuses.
var nodeRules = []func(NodeFacts) (plan.Verdict, bool){
	nodeForced, nodeReady, daemonFresh, daemonWrites,
}

// ForNode decides whether a node may be forgotten.
func ForNode(f NodeFacts) plan.Verdict {
	return plan.Decide(nodeRules, f, plan.Verdict{Action: Forget})
}

func nodeForced(f NodeFacts) (plan.Verdict, bool) { return plan.Verdict{Action: Forget}, f.Forced }

func nodeReady(f NodeFacts) (plan.Verdict, bool) {
	ready := false
	if f.Node != nil {
		ready, _ = plan.NodeReady(f.Node)
	}
	return refusal(ReasonNodeReady, "node %s is there and Ready", f.Name), ready
}

// daemonFresh: the Node may have been deleted while the machine runs. A clock that is behind the
// API server's makes a sign look as if it came from the future: that is fresh, too.
func daemonFresh(f NodeFacts) (plan.Verdict, bool) {
	at := slices.IndexFunc(f.Signs, func(s Sign) bool { return f.Now.Sub(s.Written) < FreshFor })
	if at < 0 {
		return plan.Verdict{}, false
	}
	s := f.Signs[at]
	return refusal(ReasonDaemonFresh, "the daemon of node %s wrote %s at %s, less than %s ago",
		f.Name, s.What, s.Written.UTC().Format(time.TimeOnly), FreshFor), true
}

// daemonWrites: whatever the clocks say.
func daemonWrites(f NodeFacts) (plan.Verdict, bool) {
	for _, now := range f.Later {
		if !slices.ContainsFunc(f.Signs, func(was Sign) bool {
			return was.What == now.What && was.Version == now.Version
		}) {
			return refusal(ReasonDaemonFresh, "the daemon of node %s wrote %s just now",
				f.Name, now.What), true
		}
	}
	return plan.Verdict{}, false
}

func refusal(reason, format string, args ...any) plan.Verdict {
	return plan.Verdict{Action: plan.Refuse, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// VolumeFacts is everything that the decision about a volume object depends on. Self names the
// provisioners that are served, and the node that is forgotten.
type VolumeFacts struct {
	plan.Self
	Volume *corev1.PersistentVolume
	// SharedPools are the pools that nodes share now, by the leases that there are.
	SharedPools map[string]bool
	Forced      bool
}

var volumeRules = []func(VolumeFacts) (plan.Verdict, bool){
	volumeOfOthers, volumeOfAllNodes, volumeOfNobody, volumeOfOtherProvisioner,
	volumeOnSharedStorage, volumeHeldByOthers,
}

// ForVolume decides whether a volume object goes with the node.
func ForVolume(f VolumeFacts) plan.Verdict {
	return plan.Decide(volumeRules, f, plan.Verdict{Action: Forget, Message: "its data is lost"})
}

func keep(format string, args ...any) plan.Verdict {
	return plan.Verdict{Action: plan.Keep, Message: fmt.Sprintf(format, args...)}
}

// volumeOfOthers: the label is the node's name; where pods can use the volume, which the affinity
// says, is of no interest any more. A volume of scope shared or every-node has no node's label.
func volumeOfOthers(f VolumeFacts) (plan.Verdict, bool) {
	ofAll := plan.ScopeOf(f.Volume) != plan.ScopeNode
	return plan.Verdict{Action: plan.Ignore},
		ofAll && !f.Serves(f.Volume.Annotations[plan.ProvisionedBy]) ||
			!ofAll && f.Volume.Labels[plan.NodeLabel] != plan.NodeLabelValue(f.Node)
}

func volumeOfAllNodes(f VolumeFacts) (plan.Verdict, bool) {
	switch plan.ScopeOf(f.Volume) {
	case plan.ScopeNode:
		return plan.Verdict{}, false
	case plan.ScopeEveryNode:
		return keep("each node has a directory of it: that of node %s is lost, the others stay",
			f.Node), true
	default:
		return keep("its data is on shared storage"), true
	}
}

func volumeOfNobody(f VolumeFacts) (plan.Verdict, bool) {
	return keep("it names no provisioner (annotation %s)", plan.ProvisionedBy),
		f.Volume.Annotations[plan.ProvisionedBy] == ""
}

func volumeOfOtherProvisioner(f VolumeFacts) (plan.Verdict, bool) {
	by := f.Volume.Annotations[plan.ProvisionedBy]
	return keep("its provisioner is %s, which was not named", words.Quoted(by)), !f.Serves(by)
}

// volumeOnSharedStorage: it was made when the node had the pool alone, and nodes share the pool
// now. Its data is where the other nodes have it, too.
func volumeOnSharedStorage(f VolumeFacts) (plan.Verdict, bool) {
	pool := f.Volume.Labels[plan.PoolLabel]
	return keep("nodes share pool %s by now, so that its data may be there", words.Name(pool)),
		f.SharedPools[pool] && !f.Forced
}

func volumeHeldByOthers(f VolumeFacts) (plan.Verdict, bool) {
	other := plan.OthersFinalizer(f.Volume)
	return plan.Verdict{Action: plan.Refuse, Message: fmt.Sprintf(
		"it has the finalizer %q: its owner has to take it off first", other)}, other != ""
}

// ContentFacts is everything that the decision about a VolumeSnapshotContent depends on.
type ContentFacts struct {
	plan.Self
	Content *snapshotapi.Content
	// Volumes are the names of those that go with the node.
	Volumes map[string]bool
}

var contentRules = []func(ContentFacts) (plan.Verdict, bool){
	contentOfOtherDriver, contentOfOthers, contentHeldByOthers,
}

// ForContent decides whether a content goes with the node.
func ForContent(f ContentFacts) plan.Verdict {
	return plan.Decide(contentRules, f, plan.Verdict{Action: Forget, Message: "its data is lost"})
}

func contentOfOtherDriver(f ContentFacts) (plan.Verdict, bool) {
	return plan.Verdict{Action: plan.Ignore}, !f.Serves(f.Content.Spec.Driver)
}

// contentOfOthers: one that no node has taken waits for the node of its volume.
func contentOfOthers(f ContentFacts) (plan.Verdict, bool) {
	node, from := plan.NodeOfContent(f.Content), f.Content.Spec.Source.VolumeHandle
	waits := node == "" && from != nil && f.Volumes[*from]
	return plan.Verdict{Action: plan.Ignore}, node != f.Node && !waits
}

func contentHeldByOthers(f ContentFacts) (plan.Verdict, bool) {
	for _, one := range f.Content.Finalizers {
		if one != snapshotapi.Finalizer {
			return plan.Verdict{Action: plan.Refuse, Message: fmt.Sprintf(
				"it has the finalizer %q: its owner has to take it off first", one)}, true
		}
	}
	return plan.Verdict{}, false
}

// ClaimFacts is everything that the decision about a claim depends on.
type ClaimFacts struct {
	Node   string
	Claim  *corev1.PersistentVolumeClaim
	Volume *corev1.PersistentVolume // the object that the claim names, nil: there is none
}

// ForClaim decides whether a claim goes: its volume's object went with the node, and none has come
// in its place.
func ForClaim(f ClaimFacts) plan.Verdict {
	switch {
	case f.Claim.Annotations[Annotation] != f.Node, f.Claim.Spec.VolumeName == "":
		return plan.Verdict{Action: plan.Ignore}
	case f.Volume != nil:
		return keep("volume %s is there", f.Volume.Name)
	default:
		return plan.Verdict{Action: Forget, Message: "its data is lost"}
	}
}

// ForPod decides whether a pod that uses a claim that goes is deleted, too: on the node that is
// gone it keeps the claim for ever, and elsewhere it waits for a claim that the controller of a
// StatefulSet makes again only with a new pod (kubernetes#113139).
func ForPod(pod *corev1.Pod, node string) plan.Verdict {
	owned := slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Controller != nil && *o.Controller
	})
	switch {
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return plan.Verdict{Action: plan.Ignore}
	case pod.Spec.NodeName == node:
		return plan.Verdict{Action: Forget}
	case pod.Spec.NodeName != "":
		return keep("it was given to node %s: the claim waits until it is gone", pod.Spec.NodeName)
	case !owned:
		return keep("nothing makes it again: it waits for a claim of the same name")
	default:
		return plan.Verdict{Action: Forget}
	}
}
