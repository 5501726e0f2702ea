package e2e

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// unhurried is a context for what another node does half a minute after one that does nothing, and
// later where the cluster has many nodes, as that of all tests together.
func (w *environment) unhurried() context.Context {
	ctx, cancel := context.WithTimeout(w.Ctx, 3*time.Minute)
	w.Cleanup(cancel)
	return ctx
}

func (w *environment) told(c *corev1.PersistentVolumeClaim, reason, message string) {
	w.Helper()
	if got := w.warned(w.unhurried(), c, reason).Out; got != message {
		w.Errorf("event %q, want %q", got, message)
	}
}

// A node's daemon stands still after claims were given to it, and another node never was there.
// Immediate claims get their volume elsewhere; of the others each gets a word, and the scheduler
// chooses again where it can. When the daemon goes on nothing is made twice.
func TestNodesThatDoNothing(t *testing.T) {
	w := newEnvironment(t)
	a, b := w.newHost("a").run(), w.newHost("b").run()
	now, later := w.Class("i", immediate), w.Class("w", wait)
	gone := w.Namespace + "-gone"
	w.Must(a.Signal(syscall.SIGSTOP))

	w.claim("taken", now, "1Mi", annotate(selectedNode, a.node))
	w.claim("taken-by-none", now, "1Mi", annotate(selectedNode, gone))
	silent := w.claim("silent", later, "1Mi", annotate(selectedNode, a.node))
	named := w.claim("named", later, "1Mi", annotate(provisionOnNode, gone))
	lost := w.claim("lost", later, "1Mi", annotate(selectedNode, gone))

	w.told(named, "NodeNotFound", fmt.Sprintf("the claim names node %s in kubevirt.io/provisionOnNode, and the cluster has no node of this name", gone))
	w.told(lost, "NodeNotFound", fmt.Sprintf("node %s was chosen for the claim, and the cluster has no node of this name any more; the scheduler may choose again", gone))
	w.told(silent, "NodeSilent", fmt.Sprintf("node %s was chosen for the claim and has made no volume; unless another event here says why, its daemon does not run", a.node))
	w.pod("user", []string{b.node}, "lost")
	var made []string
	for _, name := range []string{"taken", "taken-by-none", "lost"} {
		claim := need(w.WaitClaimBound(w.unhurried(), w.Namespace, name))(w)
		made = append(made, w.boundOn(name, b).Name)
		if name != "lost" {
			w.event(claim, "TakenOver")
		}
	}
	// The scheduler's word stands: it is for the pod.
	left := getIn(w, w.pvcs(), "silent")
	if left.Annotations[selectedNode] != a.node || left.Spec.VolumeName != "" {
		t.Errorf("the claim of the node that stands still: %v, volume %q", left.Annotations, left.Spec.VolumeName)
	}
	b.wantTree(pool.Of(made...)...)

	w.Must(a.Signal(syscall.SIGCONT))
	pv := w.Bound("silent")
	a.wantTree(pool.Of(pv.Name)...)
	b.wantTree(pool.Of(made...)...)
}
