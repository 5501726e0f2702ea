package plan

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// kube-scheduler compares each claim of a pod alone with what a node publishes, and writes the node
// on all of them (pkg/scheduler/framework/plugins/volumebinding). A volume that is made holds the
// pod on its node, also where another claim of the pod can never have one there. So the claims of a
// pod get their volumes together, or are given back together.

// Together is the claims of a pod that get their volumes together.
type Together struct {
	Pod    string
	Claims []ClaimFacts
	// Refusal is why none gets one here, nil if all can. By is the claim that is refused by itself,
	// "" if all of them need too much.
	Refusal *Refusal
	By      string
	// Stays is a claim of the pod that has its volume on this node, "" for none: the pod can run on
	// no other one.
	Stays string
}

// PodClaim reports whether a claim gets its volume together with the other claims of its pod: it
// has none yet, its class waits for the pod and leads to this pool of one node, and no other node
// was chosen for it, nor any by its author.
func (s Self) PodClaim(c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, pool Pool) bool {
	ours := Chosen(c) == "" || Chosen(c) == s.Node && c.Annotations[ProvisionOnNode] == ""
	return ours && c.Spec.VolumeName == "" && c.DeletionTimestamp == nil && s.mayServe(c) &&
		WaitsForConsumer(class) && pool.OfOneNode()
}

// Impossible reports why a claim cannot have its volume on this node. What only has to be waited
// for does not count.
func (f ClaimFacts) Impossible() (Refusal, bool) {
	r, refused := f.forRequest()
	return r, refused && r.Help != ByItself
}

// Postponed reports whether a claim has to wait for something beside its pod.
func (f ClaimFacts) Postponed() bool {
	r, refused := f.forRequest()
	return refused && r.Help == ByItself
}

func (f ClaimFacts) forRequest() (Refusal, bool) {
	f.Request = requestOf(f.Claim, f.Class)
	return ForRequest(f.RequestFacts)
}

// Needs is what a claim requests, in bytes.
func Needs(c *corev1.PersistentVolumeClaim) uint64 {
	n, _ := Bytes(requested(c))
	return uint64(n)
}

// Full has all claims refused: the pool of one of them has this room, or its disks have theirs, and
// they need more.
func (t *Together) Full(of ClaimFacts, room capacity.Room) {
	var sum uint64
	var parts []string
	for _, f := range t.Claims {
		if f.Pool.Name == of.Pool.Name || len(f.Disks) > 1 && f.Disks[0].Pool.Name == of.Disks[0].Pool.Name {
			size := requested(f.Claim)
			sum += Needs(f.Claim)
			parts = append(parts, words.Name(f.Claim.Name)+" "+words.Name(size.String()))
		}
	}
	if more := len(parts) - claimsNamed; more > 0 {
		parts = append(parts[:claimsNamed], fmt.Sprintf("%d more", more))
	}
	where, left := "pool "+of.Pool.Name+": ", roomLeft(room)
	if len(of.Disks) > 1 {
		where, left = "", "each is in one of several pools: "+eachHas(of.Disks)
	}
	t.Refusal = &Refusal{Help: ByNode, Reason: ReasonNotEnoughSpace, Message: fmt.Sprintf(
		"%sthe claims of pod %s request %s together (%s), and %s", where,
		words.Name(t.Pod), words.Size(sum), strings.Join(parts, ", "), left)}
}

// claimsNamed is how many of a pod's claims are named.
const claimsNamed = 5

// Verdict is what becomes of one of the claims where they are refused. One that no node can provide
// keeps the others waiting: given back they would come again at once.
func (t *Together) Verdict(of ClaimFacts) Verdict {
	message := t.Refusal.Message
	if t.By != "" && t.By != of.Claim.Name {
		message = fmt.Sprintf("claim %s of pod %s, which uses this one, too, cannot have its volume: %s",
			words.Name(t.By), words.Name(t.Pod), message)
	}
	if t.Stays != "" {
		message += fmt.Sprintf("; claim %s of the pod has its volume on this node, so that the "+
			"pod can run on no other", words.Name(t.Stays))
	}
	if t.Refusal.Help == ByNode && t.Stays == "" {
		return of.cannot(t.Refusal.Reason, message)
	}
	return Verdict{Action: Wait, Reason: t.Refusal.Reason,
		Message: "node " + of.Node + ": " + message, After: retryAfter}
}

// Placeable reports whether a claim waits for a node to be chosen, and a pod that names its node
// can choose it: the scheduler never sees such a pod. A copy is made where its source is.
func Placeable(c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) bool {
	return NodeOpen(c) && WaitsForConsumer(class) && !IsCopy(c)
}

// Placed is the claim of a pod that names this node, as if this node were chosen for it.
func (f ClaimFacts) Placed() ClaimFacts {
	f.Claim = f.Claim.DeepCopy()
	f.Claim.Annotations = map[string]string{SelectedNode: f.Node}
	return f
}

// podClaims is how many claims of a pod are held, the first ones.
const podClaims = 32

// PodClaims are the names of the claims of a pod that count: the first ones, each once.
func PodClaims(pod *corev1.Pod) []string { return PodClaimNames(pod, podClaims) }

// PodClaimNames are the names of the claims that a pod uses, each once, at most so many.
func PodClaimNames(pod *corev1.Pod, most int) []string {
	var all []string
	for _, v := range pod.Spec.Volumes {
		name := ""
		switch {
		case len(all) == most:
			return all
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name = pod.Name + "-" + v.Name // pkg/controller/volume/ephemeral
		}
		if name != "" && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}
