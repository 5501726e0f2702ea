package e2e

import (
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// scoped gives the host's pool another scope, and the daemon its new configuration if it runs.
func (h *host) scoped(was, now string, running bool) {
	h.w.Helper()
	h.edit(`scope = "`+was+`"`, `scope = "`+now+`"`)
	if running {
		h.w.Must(h.Signal(syscall.SIGHUP))
	}
}

// With another scope no daemon would watch the volumes of a pool that was shared, or had a
// directory on each node: the pool is closed and says so, and all goes on when the scope is set
// back.
func TestScopeLeft(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ was, now string }{{"shared", "node"}, {"every-node", "node"}, {"every-node", "shared"}, {"shared", "every-node"}} {
		t.Run(c.was+" to "+c.now, func(t *testing.T) {
			w := newEnvironment(t)
			h := w.bareHost(hosttest.Mkfs(w, "ext4", 64), "a", `scope = "`+c.was+`"`).joins().run()
			volumes := h.emptyAndFull()
			h.scoped(c.was, c.now, true)
			says := "made with another scope (" + c.was + ": 2), and the pool has scope " + c.now
			if c.was == "shared" && c.now == "every-node" { // the marker is enough
				says = "is a pool that nodes share by its marker, and the pool has scope every-node"
			}
			h.wantClosed("ScopeChanged", says)
			h.call("check").Fails("closed: ScopeChanged", "set scope in [pool.fast] back")
			h.call("volumes", "fast").Ends(0).Counts(" bound", 2)
			w.DeleteClaim("empty", "full")
			for _, pv := range volumes {
				w.Phase(pv, corev1.VolumeReleased)
			}
			claim := w.claim("later", w.Class("l", immediate), "1Mi")
			if c.now != "shared" { // whose claims wait for a daemon that works
				w.refused(claim, "PoolClosed", says)
			}
			h.wantTree(pool.Of(volumes...)...)
			h.scoped(c.now, c.was, true)
			w.Gone(volumes...)
			h.wantTree(pool.Of(w.Bound("later").Name)...)
		})
	}
}

// A volume that bears a node's name is removed whatever scope its pool got: by its node's daemon,
// and in a shared pool by the one that holds the lease.
func TestScopeOfOneNodeChanged(t *testing.T) {
	t.Parallel()
	t.Run("every-node", func(t *testing.T) {
		w := newEnvironment(t)
		h := w.bareHost(hosttest.Mkfs(w, "ext4", 64), "a", `scope = "node"`).joins().run()
		volumes := h.emptyAndFull()
		h.scoped("node", "every-node", true)
		h.said("reason=ScopeChanged", 1)
		w.Removes("full", volumes[1])
		h.wantTree(pool.Of(volumes[0])...)
	})
	t.Run("shared", func(t *testing.T) {
		w := newEnvironment(t)
		nodes := w.sharedBy([]string{"a", "b"})
		a, b := nodes[0], nodes[1]
		a.scoped("shared", "node", false)
		a.run()
		volumes := a.emptyAndFull()
		a.stop()
		b.run()
		alone := `is a pool of node "` + a.node + `" alone by its marker`
		b.wantClosed("OtherNode", alone)
		a.scoped("node", "shared", false)
		a.run()
		w.Must(b.WaitStatus(w.Soon(), "1 of 1 pool open"))
		a.stop()
		w.holder(nodes, func(n *node) bool { return n == b })
		// The lease is the other node's daemon's, and no watch of its brings this one's volume.
		w.Removes("full", volumes[1])
		b.wantTree(pool.Of(volumes[0])...)
		b.call("volumes", "fast").Ends(0, " bound")
		a.run()
		b.stop()
		w.holder(nodes, func(n *node) bool { return n == a })
		w.Removes("empty", volumes[0])
		a.wantTree()
	})
}

// A pool that one node has alone is shared once that node's daemon knows it, or an operator says
// that it does not come back; and a shared one is a node's alone once an operator says so, and not
// by the configuration.
func TestScopeByTheMarker(t *testing.T) {
	w, nodes := twoNodes(t)
	a, b := nodes[0], nodes[1]
	a.scoped("shared", "node", false)
	a.run()
	b.run()
	b.wantClosed("OtherNode", `is a pool of node "`+a.node+`" alone by its marker`)
	b.call("check").Fails("set its scope to shared on that node first")
	volume := a.emptyAndFull()[0] // goes on beside the other one
	a.stop()
	b.call("prepare", "fast", "--from-node", a.node).Ends(0, "and is shared")
	w.Must(b.WaitStatus(w.Soon(), "1 of 1 pool open"))
	a.run()
	a.wantClosed("ScopeChanged", "is a pool that nodes share by its marker, and the pool has scope node")
	w.DeleteClaim("full")
	w.Removes("empty", volume)
	w.Eventually("nothing is left in the pool", func() bool { out, _ := b.Call("volumes", "fast"); return !strings.Contains(out, "pvc-") })
	b.stop()
	a.call("prepare", "fast").Fails("nodes share by its marker")
	a.call("prepare", "fast", "--from-shared").Ends(0, "do not share the pool any more")
	w.Must(a.WaitStatus(w.Soon(), "1 of 1 pool open"))
	b.run()
	b.wantClosed("OtherNode", `is a pool of node "`+a.node+`" alone by its marker`)
}
