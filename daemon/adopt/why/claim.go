package why

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/storagecapacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// claimFacts are what the API says of a claim.
type claimFacts struct {
	*corev1.PersistentVolumeClaim
	class string // its name
	is    *storagev1.StorageClass
	blind bool // the class may not be read
	ours  bool
	node  node // that was chosen or named, the zero value for none
	pods  []*corev1.Pod
	alone bool // the pods may not be read
	// volume is the one that it names and is not bound to; gone: there is none.
	volume *corev1.PersistentVolume
	gone   bool
	// refusal is the last one that it was told, "" for none.
	refusal string
}

// waits is what an object waits for, and what helps.
type waits struct{ what, help string }

// claimRules are in order: the first that applies counts.
var claimRules = []func(f claimFacts) (waits, bool){
	claimDeleted, claimLost, claimGrows, claimBound, claimWithoutClass, classGone, classOfOther,
	claimNamesVolume, claimHasNode, classUnseen, claimBindsAtOnce, podsUnseen, claimWithoutPod,
	podWithoutScheduler, podUnscheduled,
}

// claim is the page of a claim. With the pods that use it where they are known.
func (a *asker) claim(ctx context.Context, namespace, name string,
	pods []*corev1.Pod) (Page, error) {
	c, err := a.GetClaim(ctx, namespace, name)
	switch {
	case err != nil:
		return Page{}, err
	case c == nil:
		return Page{}, NotFoundError{"claim " + namespace + "/" + name}
	}
	f := claimFacts{PersistentVolumeClaim: c, class: plan.ClassName(c), pods: pods}
	if f.class != "" {
		f.is, err = a.GetClass(ctx, f.class)
		f.blind = !a.seen("storage classes", err)
	}
	f.ours = f.is != nil && a.Serves(f.is.Provisioner)
	f.node = a.node(ctx, plan.Chosen(c))
	if pods == nil {
		f.pods, f.alone = a.podsOf(ctx, c)
	}
	if c.Spec.VolumeName != "" && c.Status.Phase == corev1.ClaimPending {
		f.volume, err = a.GetVolume(ctx, c.Spec.VolumeName)
		f.gone = a.seen("volumes", err) && f.volume == nil
	}
	page := Page{Object: "claim " + namespace + "/" + name, State: f.state()}
	page.Events = a.events(ctx, c)
	refused := func(e Event) bool { return e.Type == corev1.EventTypeWarning }
	if at := slices.IndexFunc(page.Events, refused); at >= 0 {
		f.refusal = page.Events[at].Message
	}
	w := plan.Decide(claimRules, f, waits{})
	page.Waits, page.Help = w.what, w.help
	if c.Spec.VolumeName == "" {
		page.on = f.node.name
		if f.ours {
			page.Rooms = a.rooms(ctx, f)
		}
		return page, nil
	}
	if volume, err := a.volume(ctx, c.Spec.VolumeName); a.seenPart("volumes", err) {
		page.Parts, page.on = []Page{volume}, volume.on
	}
	return page, nil
}

// seenPart is seen, for an object that need not exist.
func (a *asker) seenPart(what string, err error) bool {
	return !errors.As(err, new(NotFoundError)) && a.seen(what, err)
}

// podsOf are the pods of the namespace that use a claim and have not ended; unseen if they may not
// be read.
func (a *asker) podsOf(ctx context.Context, c *corev1.PersistentVolumeClaim) (all []*corev1.Pod,
	unseen bool) {
	const running = "status.phase!=Succeeded,status.phase!=Failed"
	err := a.EachPod(ctx, c.Namespace, running, func(p *corev1.Pod) {
		if slices.Contains(plan.PodClaimNames(p, len(p.Spec.Volumes)), c.Name) {
			all = append(all, p)
		}
	})
	return all, !a.seen("pods", err)
}

// rooms is what each node publishes for the claim's class.
func (a *asker) rooms(ctx context.Context, f claimFacts) (all []Room) {
	want := f.Spec.Resources.Requests.Storage().Value()
	err := a.EachRoom(ctx, []string{f.is.Provisioner}, func(o storagecapacity.Object) {
		if o.Class == f.class && o.Node != "" {
			fits := o.Closed == "" && o.Bytes >= want
			all = append(all, Room{Node: o.Node, Closed: o.Closed, Bytes: o.Bytes, Fits: fits})
		}
	})
	a.seen("capacities", err)
	slices.SortFunc(all, func(x, y Room) int { return strings.Compare(x.Node, y.Node) })
	return all
}

func (f claimFacts) state() string {
	text := fmt.Sprintf("%s, %s", f.Status.Phase, f.Spec.Resources.Requests.Storage())
	if f.class != "" {
		text += " of class " + words.Name(f.class)
	}
	if f.is != nil && f.is.VolumeBindingMode != nil {
		text += fmt.Sprintf(" (%s)", *f.is.VolumeBindingMode)
	}
	return text
}

func claimDeleted(f claimFacts) (waits, bool) {
	w := waits{what: "its deletion: " + finalizers(f.Finalizers)}
	for _, p := range f.pods {
		w.what += ", and pod " + p.Name + " uses it"
	}
	return w, f.DeletionTimestamp != nil
}

func finalizers(all []string) string {
	if len(all) == 0 {
		return "the API server removes it now"
	}
	return "it has " + words.Line(strings.Join(all, ", "), 300)
}

func claimLost(f claimFacts) (waits, bool) {
	return waits{
		"its volume " + words.Name(f.Spec.VolumeName) + ", which does not exist any more",
		"on each node: hostpath-provisioner volumes, where it is orphaned if its data is there; " +
			"docs/operation.md says how to use it again",
	}, f.Status.Phase == corev1.ClaimLost
}

func claimGrows(f claimFacts) (waits, bool) {
	has, asks := f.Status.Capacity[corev1.ResourceStorage], f.Spec.Resources.Requests.Storage()
	w := waits{what: fmt.Sprintf("its expansion: it has %s", has.String())}
	for _, c := range f.Status.Conditions {
		if c.Message != "" && c.Type != corev1.PersistentVolumeClaimUnused {
			w.what += ": " + words.Line(c.Message, 300)
		}
	}
	return w, f.Status.Phase == corev1.ClaimBound && plan.Exceeds(*asks, has)
}

func claimBound(f claimFacts) (waits, bool) {
	return waits{}, f.Status.Phase == corev1.ClaimBound
}

func claimWithoutClass(f claimFacts) (waits, bool) {
	return waits{
		"a volume that a person makes: it names no class",
		"kubectl get storageclass; then make the claim again with storageClassName",
	}, f.class == "" && f.Spec.VolumeName == ""
}

func classGone(f claimFacts) (waits, bool) {
	return waits{
		"its class " + words.Quoted(f.class) + ", which does not exist",
		"make the class, or the claim again with one of: kubectl get storageclass",
	}, f.class != "" && f.is == nil && !f.blind
}

func classOfOther(f claimFacts) (waits, bool) {
	if f.is == nil || f.ours {
		return waits{}, false
	}
	by := words.Quoted(f.is.Provisioner)
	return waits{what: "provisioner " + by + ", which is none of ours"}, true
}

func claimNamesVolume(f claimFacts) (waits, bool) {
	name := words.Name(f.Spec.VolumeName)
	w := waits{what: "kube-controller-manager, which binds it to volume " + name}
	if f.gone {
		w = waits{"volume " + name + ", which does not exist",
			"make the volume, or the claim again without volumeName"}
	} else if f.volume != nil && f.volume.Spec.ClaimRef != nil {
		of := f.volume.Spec.ClaimRef
		switch {
		case of.Namespace != f.Namespace || of.Name != f.Name:
			w.what = "volume " + name + ", which claim " + of.Namespace + "/" + of.Name + " has"
		case of.UID != "" && of.UID != f.UID:
			w = waits{"volume " + name + ", which an earlier claim of this name has",
				"docs/operation.md says how to use a volume again"}
		}
	}
	return w, f.Spec.VolumeName != ""
}

func claimHasNode(f claimFacts) (waits, bool) {
	w := waits{f.node.String(), f.node.help()}
	if f.node.gone && f.Annotations[plan.ProvisionOnNode] == "" {
		w.help = "the daemons of other nodes give it back within two minutes"
	}
	return w, f.node.name != ""
}

func classUnseen(f claimFacts) (waits, bool) {
	return waits{what: "what its class says, which this user may not read"}, f.blind
}

func claimBindsAtOnce(f claimFacts) (waits, bool) {
	w := waits{
		"a node with room for it: its class binds at once, to whichever is first",
		"on a node that should have room: hostpath-provisioner check",
	}
	if f.refusal != "" { // it need not be for room
		w.what = "a node that can make it, to which its class binds at once: the last one said: " +
			words.Line(f.refusal, 600)
	}
	return w, !plan.WaitsForConsumer(f.is)
}

func podsUnseen(f claimFacts) (waits, bool) {
	return waits{what: "a pod that uses it, or the scheduler: this user may not read pods"}, f.alone
}

func claimWithoutPod(f claimFacts) (waits, bool) {
	return waits{what: "a pod that uses it: its class makes no volume before " +
		"(WaitForFirstConsumer)"}, len(f.pods) == 0
}

// podWithoutScheduler: Kubernetes never chooses a node for the claims of such a pod.
func podWithoutScheduler(f claimFacts) (waits, bool) {
	for _, p := range f.pods {
		if node := words.Name(p.Spec.NodeName); node != "" {
			return waits{
				fmt.Sprintf("the daemon of node %s, which pod %s names itself, so that the scheduler never "+
					"chooses one", node, p.Name),
				fmt.Sprintf("on node %s: hostpath-provisioner check --cluster", node),
			}, true
		}
	}
	return waits{}, false
}

func podUnscheduled(f claimFacts) (waits, bool) {
	return waits{what: fmt.Sprintf("the scheduler, which chooses a node for pod %s%s",
		f.pods[0].Name, unscheduled(f.pods[0]))}, true
}

// unscheduled is what the scheduler says of a pod.
func unscheduled(p *corev1.Pod) string {
	if len(p.Spec.SchedulingGates) > 0 {
		return ", once its scheduling gates are gone"
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message != "" {
			return ": " + words.Line(c.Message, 600)
		}
	}
	return ""
}
