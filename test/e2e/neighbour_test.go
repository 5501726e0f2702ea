package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// twin is a second daemon for the same node and the same pool, as an administrator starts it by
// mistake: with a state and a runtime directory of its own, and with the pool under another path.
func (h *host) twin(config string) *host {
	h.w.Helper()
	t := &host{w: h.w, node: h.node, image: h.image, mount: h.mount}
	t.Daemon = h.w.Unprepared("the same node", rig.Options{Dir: hosttest.Dir(h.w), Config: config})
	return t
}

// The state directory's lock does not know a second daemon that has another one; the pool's does.
// Its pool is closed and the message names the first, which is not disturbed; when the first one
// ends, however it ends, the second one's pool opens by itself.
func TestSecondDaemonOnThePool(t *testing.T) {
	w, h, class := oneHost(t)
	one := h.made("one", class)

	config := h.config()
	second := h.twin(config).run()
	held := fmt.Sprintf("another daemon (pid %d, state directory %s) uses this pool", h.PID(), h.Path("state"))
	w.Must(second.WaitStatus(w.Soon(), held))
	if status := h.Status(); !strings.Contains(status, "1 of 1 pool open") {
		t.Errorf("the first daemon: %s", status)
	}
	for i := range 5 {
		h.made(fmt.Sprint("both-", i), class) // by the first: the second has no pool to do it in
	}
	second.logged().Lacks("reason=ProvisioningSucceeded")
	w.Removes("one", one.Name)
	if _, err := os.Stat(second.Path("state", "pools", "fast.json")); !os.IsNotExist(err) {
		t.Errorf("the second daemon remembers a pool that it never had: %v", err)
	}

	h.Kill()
	w.Must(second.WaitStatus(w.Soon(), "1 of 1 pool open"))
	second.made("after", class)

	// And back, with a reload that gives the pool up.
	w.Must(h.Start())
	w.Must(h.WaitStatus(w.Soon(), fmt.Sprintf("another daemon (pid %d, ", second.PID())))
	second.reload(strings.Replace(config, h.mount, filepath.Join(filepath.Dir(h.mount), "elsewhere")+"\"\nrequire_mount = false\nimmutable = \"off", 1))
	w.Must(h.WaitStatus(w.Soon(), "1 of 1 pool open"))
	w.Must(second.WaitStatus(w.Soon(), "pool fast is closed"))
	h.made("back", class)
	h.Kill()
}

// The same filesystem under another path is the same pool: the lock is of the marker.
func TestSecondDaemonByAnotherPath(t *testing.T) {
	w, h, class := oneHost(t)
	config := h.config()
	door := hosttest.MountPoint(t)
	hosttest.Mount(t, "--bind", h.mount, door)
	second := h.twin(strings.Replace(config, h.mount, door, 1)).run()
	w.Must(second.WaitStatus(w.Soon(), fmt.Sprintf("another daemon (pid %d, state directory %s)", h.PID(), h.Path("state"))))
	h.made("data", class)
}
