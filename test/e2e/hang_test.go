package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hungfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// One pool's filesystem stops responding, as a dead NFS server's does. Its gate closes by the
// deadline, the other pool works on, systemd's watchdog is fed, the daemon can be stopped and
// started, and when the filesystem responds again the claim that waited goes through.
func TestHungPool(t *testing.T) {
	w := newEnvironment(t)
	net := filepath.Join(hosttestDir(t, "mnt"), "net")
	h := w.newHost("a", fmt.Sprintf("[pool.net]\npath = %q\nimmutable = \"require\"", net))
	prepared := func() {
		t.Helper()
		if out, code := h.Call("prepare", "net"); code != 0 {
			t.Fatal(out)
		}
	}
	prepared()
	fs := hungfs.Mount(t, net)
	prepared()
	h.run()
	fast := w.Class("fast", immediate, fixture.Parameters("pool", "fast"))
	slow := w.Class("net", immediate, fixture.Parameters("pool", "net"))
	one, two := h.made("one", fast), h.made("two", slow)

	fs.Silence()
	waiting := w.claim("waiting", slow, "1Mi", annotate(provisionOnNode, h.node))
	three := h.made("three", fast)
	w.Must(h.WaitStatus(w.Soon(), "pool net is closed"))
	w.refused(waiting, "PoolClosed")
	four := h.made("four", fast)
	beats := h.Beats()
	w.Must(h.WaitBeats(w.Soon(), beats+2))

	// Stopped and started while it hangs.
	took, code, err := h.Stop(w.Soon())
	w.Must(err)
	if code != 0 {
		t.Errorf("stopping beside a hung pool took %s, exit code %d", took, code)
	}
	h.run()
	five := h.made("five", fast)

	fs.Resume()
	w.Must(h.WaitStatus(w.Soon(), "2 of 2 pools open"))
	w.Bound("waiting")
	h.wantTree(pool.Of(one.Name, three.Name, four.Name, five.Name)...)
	other := &host{w: w, node: h.node, mount: net}
	other.wantTree(pool.Of(two.Name, "pvc-"+string(waiting.UID))...)
}

// Every way in which the storage can be the wrong one closes the gate with its own reason, and
// mending it opens the gate without any help.
func TestWrongStorage(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a").run()
	class := w.Class("c", immediate)
	h.made("before", class)
	intruder := hosttest.Mkfs(t, "ext4", 32)
	for _, c := range []struct {
		name, reason string
		do, undo     func()
	}{
		{"unmounted", "is not a mount point", func() { hosttest.Unmount(t, h.mount) }, func() { h.image.Mount(t, h.mount) }},
		{"lazily unmounted", "is not a mount point", func() { hosttest.UnmountLazy(t, h.mount) }, func() { h.image.Mount(t, h.mount) }},
		{"read-only", "read-only", func() { hosttest.Mount(t, "-o", "remount,ro", h.mount) }, func() { hosttest.Mount(t, "-o", "remount,rw", h.mount) }},
		{"another filesystem over it", "", func() { intruder.Mount(t, h.mount) }, func() { hosttest.Unmount(t, h.mount) }},
		{"another filesystem in its place", "", func() { hosttest.Unmount(t, h.mount); intruder.Mount(t, h.mount) }, func() { hosttest.Unmount(t, h.mount); h.image.Mount(t, h.mount) }},
		{"a tmpfs over it", "", func() { hosttest.Mount(t, "-t", "tmpfs", "none", h.mount) }, func() { hosttest.Unmount(t, h.mount) }},
		{"not immutable below", "immutable", func() { h.bare(false) }, func() { h.bare(true) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.do()
			w.Must(h.WaitStatus(w.Soon(), "pool fast is closed"))
			w.Must(h.WaitStatus(w.Soon(), c.reason))
			name := "c-" + plain(c.name)
			claim := w.claim(name, class, "1Mi", annotate(provisionOnNode, h.node))
			w.refused(claim, "PoolClosed")
			c.undo()
			pv := w.Bound(name)
			w.Eventually("the directory is on the pool's filesystem", func() bool {
				return contains(h.tree(), pv.Name)
			})
		})
	}
}

// bare sets or clears the immutable flag of the directory under the mount, as root can by looking
// at the parent filesystem: here by unmounting for a moment.
func (h *host) bare(immutable bool) {
	h.w.Helper()
	hosttest.Unmount(h.w, h.mount)
	hosttest.SetImmutable(h.w, h.mount, immutable)
	h.image.Mount(h.w, h.mount)
}
