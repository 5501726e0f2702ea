package e2e

import (
	"slices"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// Every way in which the storage can be the wrong one closes the gate with its own reason, and
// mending it opens the gate without any help.
func TestWrongStorage(t *testing.T) {
	w, h, class := oneHost(t)
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
				return slices.Contains(h.tree(), pv.Name)
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
