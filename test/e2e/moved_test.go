package e2e

import (
	"path/filepath"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// The pool's storage was mounted at another path, and the configuration changed with it: no pod
// would find its volume. The pool is closed, and nothing is made or removed, until both are as
// before.
func TestPoolMoved(t *testing.T) {
	w, h, class := oneHost(t)
	data, going := h.made("data", class), h.made("going", class)
	h.Kill()
	other := w.hostAt(hosttest.PoolMount(w, h.image), "a")
	w.DeleteClaim("going")
	other.run()
	other.call("status").Says("closed: PathChanged", h.mount)
	waits := w.claim("new", class, "1Mi", annotate(provisionOnNode, h.node))
	w.refused(waits, "PoolClosed", h.mount)
	other.wantTree(pool.Of(data.Name, going.Name)...)
	other.Kill()
	h.run()
	w.Must(w.WaitVolumeGone(w.Soon(), going.Name))
	h.wantTree(pool.Of(data.Name, w.Bound("new").Name)...)
}

// Half of the objects were made again with the new path: the pool is open, and the others are told
// that their pods look elsewhere.
func TestHalfThePoolMoved(t *testing.T) {
	w, h, class := oneHost(t)
	left, again := h.made("left", class), h.made("again", class)
	h.Kill()
	other := w.hostAt(hosttest.PoolMount(w, h.image), "a")
	w.ForceOff(again.Name)
	again.ResourceVersion, again.UID = "", ""
	again.Spec.Local.Path = filepath.Join(other.mount, again.Name)
	createIn(w, w.pvs(), again)
	other.run()
	w.refused(w.Volume(left.Name), "PathMismatch", other.mount, h.mount)
	other.call("status").Lacks("closed")
	other.wantTree(pool.Of(left.Name, again.Name)...)
}
