package model

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// In some worlds claims are those of two pods that wait for the scheduler: of the first one the
// first two names, of the second one the third. The scheduler writes the node on them one after the
// other, at any time, and again after they were given back. Which claims wait the daemon knows from
// its watch when it compares them; the pods are listed in the piece of work that asks for them.

// usedBy is the pod that uses the claims of a name.
var usedBy = [slots]int{0, 0, 1}

// waitingPods are those that exist and wait for the scheduler.
type waitingPods [2]bool

func podName(n int) string { return []string{"one", "two"}[n] }

// ofPods reports whether the claims are those of pods in this world.
func (s *state) ofPods() bool { return s.daemons[0].pods }

// podObject is a pod as the API server returns it.
func podObject(n int) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID = namespace, podName(n), types.UID(podName(n))
	for slot, pod := range usedBy {
		if pod == n {
			of := corev1.PersistentVolumeClaimVolumeSource{ClaimName: slotName(slot)}
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
				Name: slotName(slot), VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &of},
			})
		}
	}
	return p
}

// FewPods is part of controllers.API.
func (s server) FewPods(_ context.Context, _, _ string, visit func(*corev1.Pod)) error {
	a, err := s.ask(op{kind: fewPods})
	if err != nil {
		return err
	}
	for n, exists := range s.p.tree.etcds.value(a.etcd).pods {
		if exists {
			visit(podObject(n))
		}
	}
	return nil
}

// SetSelectedNode is part of controllers.API.
func (s server) SetSelectedNode(
	_ context.Context, c *corev1.PersistentVolumeClaim, node string,
) (bool, error) {
	given := claim{open: node == "", turn: turnOf(c)}
	_, err := s.ask(op{kind: writeNode, at: numberOf(plan.VolumeName(c)), claim: given})
	if apierrors.IsConflict(err) {
		return false, nil
	}
	return err == nil, err
}

// give is Client.SetSelectedNode (daemon/kube) and what the API server does with its patch.
func (e *etcd) give(o op) response {
	c, exists := e.claimOf(o.at)
	if !exists || c.bound || c.turn != o.claim.turn {
		return response{fault: conflict}
	}
	c.open, c.turn = o.claim.open, next(c.turn)
	e.claims[o.at/lives] = c
	return response{}
}

// nodeChosen: the scheduler has found the node fit for each claim of a pod alone, and writes it on
// one. kube-controller-manager asks the provisioner then, in most worlds at once.
func nodeChosen(_ *worker, s *state, slot int) bool {
	c := &s.api.claims[slot]
	waits := s.ofPods() && c.exists && c.open && !c.bound
	if !waits || !s.wholePod(slot) || !s.spend(choices) {
		return false
	}
	c.open, c.unasked, c.turn = false, c.unasked && s.unasked, next(c.turn)
	s.told &^= 1 << slot
	return true
}

// wholePod reports whether the pod that uses the claims of a name exists, with all its claims: else
// the scheduler does nothing for it.
func (s *state) wholePod(slot int) bool {
	for other, c := range s.api.claims {
		if usedBy[other] == usedBy[slot] && !c.exists {
			return false
		}
	}
	return s.api.pods[usedBy[slot]]
}

func podDeleted(_ *worker, s *state, n int) bool {
	if !s.api.pods[n] || !s.spend(ends) {
		return false
	}
	s.api.pods[n] = false
	return true
}

// ears hear what the product says of claims.
type ears struct {
	mute
	p *product
}

// Event is part of report.Events.
func (e ears) Event(of corev1.ObjectReference, kind, _, _ string) {
	for slot := range slots {
		about := of.Kind == "PersistentVolumeClaim" && of.Name == slotName(slot)
		if e.p.root.pods && kind == corev1.EventTypeWarning && about {
			e.p.ask(op{kind: tells, at: slot})
		}
	}
}

// allHeld is controllers.Options.AllHeld.
func (p *product) allHeld(of setting) func(string) bool {
	if !of.pods {
		return nil
	}
	return func(string) bool { p.feed(claims{p, of.self(), of.single}); return true }
}

// feed has the controllers know which claims wait, as their watch brought it.
func (p *product) feed(l claims) {
	for slot := range slots {
		was := p.fed[slot]
		now, kept := l.Get(namespace + "/" + slotName(slot))
		if !kept {
			now = nil
		}
		if p.fed[slot] = now; was != nil || now != nil {
			p.running.ClaimChanged(was, now)
		}
	}
}

// heldWork calls do with each claim for which a daemon holds room: it may have held that too long.
func (w *worker) heldWork(s *state, node int, do func(j job, what string)) {
	for _, uid := range w.tree.memories.value(s.daemons[node].memory).Held {
		do(job{controllers.WorkHeld, nodePool, numberOf("pvc-" + uid)}, "held room for %s too long")
	}
}

// holds reports whether a daemon that is idle holds room for a cell.
func (w *worker) holds(s *state, node, cell int) bool {
	return slices.Contains(w.tree.memories.value(s.daemons[node].memory).Held, uidOf(cell))
}

// missing is how many units the claims of a pod need that have no volume, by what the API server
// has; one reports whether one of them has its volume.
func (s *state) missing(pod int) (units uint8, one bool) {
	for slot, c := range s.api.claims {
		switch made := s.api.volumes[cellOf(slot, c)]; {
		case usedBy[slot] != pod || !c.exists:
		case c.bound || made.exists:
			one = true
		default:
			units += 1 + uint8(c.asks)
		}
	}
	return units, one
}

func podKeepsRoom(s *state, on onFile, cell int) string {
	c, exists := s.api.claimOf(cell)
	pod := usedBy[cell/lives]
	if s.api.pods[pod] && exists && !c.bound && on.promised == 0 {
		if need, one := s.missing(pod); one && on.all+need > s.daemons[0].room {
			return "another claim of its pod has its volume, and there is no room for this one"
		}
	}
	return ""
}

func podSettles(s *state, _ onFile, cell int) string {
	c, exists := s.api.claimOf(cell)
	slot := cell / lives
	if !s.ofPods() || !exists || c.bound || s.api.volumes[cell].exists {
		return ""
	}
	switch told := s.told>>slot&1 == 1; {
	case !c.open:
		return "its node is chosen, and it has no volume"
	case !c.unasked && !told:
		return "it was given back, and is not told why"
	}
	return ""
}

// podWorlds are worlds of two pods and their claims, in a pool that has room for two of the three.
// In the last one the claims of the first pod are there.
var podWorlds = []world{
	{name: "pods", names: 3, room: 2, pods: true, steady: true, left: often{choices: 4, ends: 1}},
	{name: "pods-killed", names: 3, room: 2, pods: true, left: often{choices: 3, kills: 1}},
	{name: "pods-raced", names: 3, room: 2, pods: true, steady: true, left: often{choices: 3, workers: 1}},
	{name: "pods-losses", names: 3, room: 2, pods: true, steady: true, left: often{choices: 3, losses: 1}},
	{name: "pods-asked", tried: 20_000, names: 3, room: 2, pods: true, steady: true, unasked: true,
		opening: []string{"claim c0 is made", "claim c1 is made"}, left: often{choices: 3, ends: 1}},
}
