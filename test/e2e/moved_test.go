package e2e

import (
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// The pool's storage was mounted at another path, and the configuration changed with it: no pod
// would find its volume. The pool is closed, and nothing is made or removed, until both are as
// before.
func TestPoolMoved(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a").run()
	class := w.Class("c", immediate)
	data, going := h.made("data", class), h.made("going", class)
	h.Kill()
	other := w.hostAt(hosttest.PoolMount(w, h.image), "a")
	w.DeleteClaim("going")
	other.run()
	out, _ := other.Call("status")
	if !strings.Contains(out, "closed: PathChanged") || !strings.Contains(out, h.mount) {
		t.Errorf("%s", out)
	}
	waits := w.claim("new", class, "1Mi", annotate(provisionOnNode, h.node))
	message := w.refused(waits, "PoolClosed")
	if !strings.Contains(message, h.mount) {
		t.Errorf("%s", message)
	}
	other.wantTree(pool.Of(data.Name, going.Name)...)
	other.Kill()
	h.run()
	w.Must(w.WaitVolumeGone(w.Soon(), going.Name))
	h.wantTree(pool.Of(data.Name, w.Bound("new").Name)...)
}
