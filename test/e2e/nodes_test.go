package e2e

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

const selectedNode = "volume.kubernetes.io/selected-node"

// Two daemons, Immediate claims that name no node: each gets one volume, more of them on the node
// with more room, and none on the one without any.
func TestImmediateGoesToTheRoomierNode(t *testing.T) {
	w := newEnvironment(t)
	small, large := w.newHost("small"), w.newHost("large")
	// Fill the small one up to its reserve.
	w.Must(os.WriteFile(filepath.Join(small.mount, "ballast"), make([]byte, 78<<20), 0o600))
	small.run()
	large.run()
	class := w.Class("c", immediate)
	for _, name := range numbered("data", 10) {
		w.claim(name, class, "1Mi")
		w.boundOn(name, large)
	}
	small.wantTree("ballast")
}

// kubevirt.io/provisionOnNode works without a pod in both binding modes, and only the named node
// acts.
func TestProvisionOnNode(t *testing.T) {
	w := newEnvironment(t)
	a, b := w.newHost("a").run(), w.newHost("b").run()
	for name, class := range map[string]string{"now": w.Class("i", immediate), "later": w.Class("w", wait)} {
		pv := w.bound(name, class, "1Mi", annotate(provisionOnNode, b.node))
		b.wantTree(pool.Of(pv.Name)...)
		w.Removes(name, pv.Name)
		b.wantTree()
	}
	a.wantTree()
}

// The node that the scheduler chose cannot: it gives the claim back with an explanation, and the
// scheduler finds the other one.
func TestClosedPoolGivesTheClaimBack(t *testing.T) {
	w := newEnvironment(t)
	a, b := w.newHost("a").run(), w.newHost("b").run()
	class := w.Class("c", wait)
	hosttest.Unmount(t, a.mount)
	w.Must(a.WaitStatus(w.Soon(), "is closed"))
	claim := w.claim("data", class, "1Mi", annotate(selectedNode, a.node))
	// The claim was given to a, as the scheduler would; then a pod comes that may run on either.
	w.refused(claim, "PoolClosed")
	w.pod("user", []string{a.node, b.node}, "data")
	// The scheduler may choose a again, and waits longer after each time.
	need(w.WaitClaimBound(w.unhurried(), w.Namespace, "data"))(w)
	w.boundOn("data", b)
	if entries, err := os.ReadDir(a.mount); err != nil || len(entries) != 0 {
		t.Errorf("the bare mount point has %v, %v", entries, err)
	}
}

// A daemon's restart changes nothing for a bound claim.
func TestRestartChangesNothing(t *testing.T) {
	w, h, class := oneHost(t)
	pv := h.made("data", class)
	h.again()
	if took, code, err := h.Stop(w.Soon()); err != nil || code != 0 {
		t.Errorf("stopping took %s, exit code %d, %v", took, code, err)
	}
	h.wantTree(pool.Of(pv.Name)...)
	now := w.Volume(pv.Name)
	if now.ResourceVersion != pv.ResourceVersion || now.Status.Phase != corev1.VolumeBound {
		t.Errorf("the volume is %s", now.Status.Phase)
	}
}
