package everynode

import (
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// recorded waits until a node's directory of a volume is recorded with this size.
func (h *host) recorded(pv string, mib int64) {
	h.w.Helper()
	h.w.Eventually("the record on "+h.node, func() bool { return h.w.Recorded(h.in(), pv) == mib<<20 })
}

// A claim that grows is expanded by one node, whose turn it is, and the other nodes follow, also
// one that was off. Claim and volume have the size once, whichever nodes have it.
func TestExpand(t *testing.T) {
	w, hosts, _ := three(t)
	off := hosts[2]
	pv := w.made("data", w.Class("x", immediate, fixture.Expandable))
	for _, h := range hosts {
		h.recorded(pv, 1)
		h.write(pv)
	}
	off.Kill()
	w.Must(w.Request("data", "3Mi"))
	w.Sized("data", "3Mi")
	hosts[0].recorded(pv, 3)
	hosts[1].recorded(pv, 3)
	off.recorded(pv, 1)
	off.run()
	w.Must(w.Request("data", "5Mi"))
	w.Sized("data", "5Mi")
	for _, h := range hosts {
		h.recorded(pv, 5)
		h.wantData(pv)
	}
}

// A node that has not the room keeps its directory as it is and says so at the volume, and another
// node expands the claim. What no node has the room for is infeasible.
func TestExpandWhereThereIsRoom(t *testing.T) {
	w := newEnvironment(t)
	large := w.host("a").run()
	small := w.host("b", setting{tmpfs: true}).run() // of 16 MiB
	pv := w.made("data", w.Class("x", immediate, fixture.Expandable))
	large.recorded(pv, 1)
	small.recorded(pv, 1)
	w.Must(w.Request("data", "25Mi"))
	w.Sized("data", "25Mi")
	large.recorded(pv, 25)
	w.event(pv, "NotEnoughSpace", small, "the directory of this volume is not expanded", "the claim requests 25Mi, and ", "including 1.0 MiB to this one")
	if got := w.Recorded(small.in(), pv); got != 1<<20 {
		t.Errorf("the node that has not the room has %d bytes in its record", got)
	}
	w.Must(w.Request("data", "1Ti"))
	claim := hosttest.Need(w.WaitClaim(w.Soon(), w.Namespace, "data", w.Infeasible()))(w)
	hosttest.Need(w.WaitEvent(w.Soon(), claim, "NotEnoughSpace"))(w)
	if w.Older(cluster.ResizeStates) {
		return // the request stays
	}
	w.Must(w.Request("data", "26Mi"))
	w.Sized("data", "26Mi")
}
