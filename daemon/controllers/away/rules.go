package away

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// After is for how long a Node is not Ready before its volumes are told of: a machine that starts
// again takes some minutes.
const After = 5 * time.Minute

// Facts is everything that the decision about one volume depends on.
type Facts struct {
	plan.Self
	Volume *corev1.PersistentVolume
	Node   *corev1.Node // nil: the cluster has none with the volume's label
	Now    time.Time
}

var rules = []func(Facts) (plan.Verdict, bool){
	ofOthers, ofManyNodes, ready, justLeft, waitsForRemoval, used,
}

// For decides whether a volume's node is to be told of, on its claim, or on the volume itself if
// its claim is gone.
func For(f Facts) plan.Verdict { return plan.Decide(rules, f, plan.Verdict{Action: plan.Ignore}) }

func ofOthers(f Facts) (plan.Verdict, bool) {
	return plan.Verdict{Action: plan.Ignore}, !f.Serves(f.Volume.Annotations[plan.ProvisionedBy])
}

// ofManyNodes: a volume of scope shared or every-node has no node that it waits for.
func ofManyNodes(f Facts) (plan.Verdict, bool) {
	return plan.Verdict{Action: plan.Ignore}, plan.ScopeOf(f.Volume) != plan.ScopeNode
}

func ready(f Facts) (plan.Verdict, bool) {
	if f.Node == nil {
		return plan.Verdict{}, false
	}
	is, _ := plan.NodeReady(f.Node)
	return plan.Verdict{Action: plan.Ignore}, is
}

func justLeft(f Facts) (plan.Verdict, bool) {
	if f.Node == nil {
		return plan.Verdict{}, false
	}
	_, since := plan.NodeReady(f.Node)
	return plan.Verdict{Action: plan.Ignore}, f.Now.Sub(since) < After
}

func waitsForRemoval(f Facts) (plan.Verdict, bool) {
	return f.remind("the volume waits for its removal there"), plan.Going(f.Volume)
}

func used(f Facts) (plan.Verdict, bool) {
	return f.remind("nothing is done with volume " + f.Volume.Name + " until then"),
		f.Volume.Status.Phase == corev1.VolumeBound
}

// remind has the same words on every node, so that their events are one.
func (f Facts) remind(what string) plan.Verdict {
	node := f.Volume.Labels[plan.NodeLabel]
	is := "does not exist any more"
	if f.Node != nil {
		node, is = f.Node.Name, "is not Ready"
	}
	return plan.Verdict{Action: plan.Remind, Reason: plan.ReasonNodeAway, Message: fmt.Sprintf(
		"node %s %s, and %s: wait for the node; or put its disk into another one and run "+
			"there: hostpath-provisioner import; or, if the data is lost: kubectl hostpath "+
			"forget-node %[1]s", words.Name(node), is, what)}
}
