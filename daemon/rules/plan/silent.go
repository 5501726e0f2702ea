package plan

import (
	"fmt"
	"math"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// A claim for which another node was chosen is that node's to provision. If its daemon is dead, or
// the node does not exist, another daemon has to notice. Every daemon holds such claims for as long
// as they have no volume, and looks at them at staggered times.

// Actions for a claim of another node.
const (
	// Inquire asks the API server whether the claim has a volume object and whether the chosen node
	// exists (ClaimFacts.Inquiry). Then the decision is asked for again.
	Inquire Action = "inquire"
	// Remind says why, unless another daemon said the same within RemindEvery.
	Remind Action = "remind"
)

const (
	// silentAfter is how long a node may take for a claim that was given to it.
	silentAfter = 30 * time.Second
	// silentSpan is the mean time between two nodes' looks after that. A claim whose volume exists
	// and that kube-controller-manager has not bound yet (at its defaults it binds 4 a second) is
	// asked for by few.
	silentSpan = 5 * time.Second
	// inquireAgain is how long what was learned of such a claim is enough.
	inquireAgain = 10 * time.Minute
	// RemindEvery is how often a claim is reminded of: events live an hour (kube-apiserver --event-ttl).
	RemindEvery = 20 * time.Minute
)

// Inquiry is what the API server said about a claim of another node.
type Inquiry struct {
	Volume bool // the claim has a volume object
	Gone   bool // there is no Node of the chosen name
}

// KeepClaimOfOther reports whether a claim concerns this node only if the node that was chosen for
// it does nothing.
func (s Self) KeepClaimOfOther(c *corev1.PersistentVolumeClaim) bool {
	if c.Spec.VolumeName != "" || c.DeletionTimestamp != nil {
		return false
	}
	asked, chosen := askedProvisioner(c), Chosen(c)
	if asked == "" && c.Annotations[ProvisionOnNode] == "" || asked != "" && !s.Serves(asked) {
		return false
	}
	return chosen != "" && chosen != s.Node
}

// NodeNamePossible reports whether the API server could have a Node of that name.
func NodeNamePossible(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }

// ofOther decides about a claim of a node's pool for which another node was chosen. It does not
// apply to an Immediate claim that was left alone: any node may take that one.
func (f ClaimFacts) ofOther() (Verdict, bool) {
	if f.Class == nil {
		return Verdict{Action: Ignore}, true
	}
	if IsCopy(f.Claim) && f.Age < inquireAgain { // to copy takes long, and no other node can
		return Verdict{Action: Wait, After: inquireAgain - f.Age}, true
	}
	if wait := f.takeOverDelay() - f.Age; wait > 0 {
		return Verdict{Action: Wait, After: wait}, true
	}
	named := f.Claim.Annotations[ProvisionOnNode] != ""
	switch {
	case f.Inquiry == nil:
		return Verdict{Action: Inquire}, true
	case f.Inquiry.Volume:
		return Verdict{Action: Wait, After: inquireAgain}, true
	case !named && !WaitsForConsumer(f.Class):
		return Verdict{}, false
	case f.Inquiry.Gone && named:
		return f.remind(ReasonNodeNotFound, "the claim names node %s in "+ProvisionOnNode+", and the cluster has no node of this name")
	case f.Inquiry.Gone:
		return Verdict{Action: Release, Reason: ReasonNodeNotFound,
			Message: fmt.Sprintf("node %s was chosen for the claim, and the cluster has no node of this name any more; the scheduler may choose again", f.otherName())}, true
	case populated(sourceOf(f.Claim)): // the chosen node waits for it, too
		return Verdict{Action: Wait, After: inquireAgain}, true
	default:
		return f.remind(ReasonNodeSilent, "node %s was chosen for the claim and has made no volume; unless another event here says why, its daemon does not run")
	}
}

// remind has the same words on every node, so that their events are one.
func (f ClaimFacts) remind(reason, format string) (Verdict, bool) {
	again := RemindEvery + time.Duration(hashFraction(string(f.Claim.UID), f.Node)*float64(RemindEvery))
	return Verdict{Action: Remind, Reason: reason, Message: fmt.Sprintf(format, f.otherName()), After: again}, true
}

// takeOverDelay is how long a claim of another node is left to that node, and then to other nodes
// to look at.
func (f ClaimFacts) takeOverDelay() time.Duration {
	if !f.otherNodes() {
		return silentAfter
	}
	rank := -math.Log(hashFraction(string(f.Claim.UID), f.Node)) * float64(f.Nodes)
	return silentAfter + spaced(rank, silentSpan)
}

// TakenOver is what is said of an Immediate claim that another node took and left alone.
func TakenOver(f ClaimFacts) Verdict {
	return Verdict{Action: Assign, Reason: ReasonTakenOver,
		Message: fmt.Sprintf("node %s took the claim and made no volume within %s; node %s takes it over", f.otherName(), f.Age.Truncate(time.Second), f.Node)}
}

// otherName is the chosen node's name as a message can have it: the claim's author may have written
// it.
func (f ClaimFacts) otherName() string {
	name := Chosen(f.Claim)
	if NodeNamePossible(name) {
		return name
	}
	return strconv.QuoteToASCII(name[:min(len(name), 60)])
}
