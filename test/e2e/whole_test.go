package e2e

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Kubevirt's programs write the size of the whole filesystem as the capacity of each volume. The
// pool keeps what the claim requests, whichever way the volume is adopted: the running daemon
// counts that at once, also once it was started again, and the node has room for others.
func TestAdoptWholeFilesystem(t *testing.T) {
	t.Parallel()
	driver := func(h *host) *corev1.PersistentVolume { return h.madeByCSI(csiDriver, "theirs") }
	for name, way := range map[string]struct {
		alias string
		lines []string
		made  func(*host) *corev1.PersistentVolume
		flags []string
	}{
		"legacy": {"kubevirt.io/hostpath-provisioner", nil,
			func(h *host) *corev1.PersistentVolume {
				return peerNamed("kubevirt").made(h, "theirs")
			}, nil},
		"from-csi": {csiDriver, nil, driver, []string{"--from-csi=" + csiDriver}},
		"in-place": {csiDriver, []string{fmt.Sprintf("csi_drivers = [%q]", csiDriver)}, driver, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			h := w.newHost("a").aliased(way.alias)
			for _, line := range way.lines {
				h.configureFirst(line)
			}
			h.run()
			theirs := way.made(h)
			before := w.Volume(theirs.Name)
			h.adopts(way.flags...)
			h.wantPromised(1 << 20) // what the claim requests
			class := w.Class("c", immediate)
			ours := w.bound("ours", class, "10Mi")
			h.again()
			w.bound("later", class, "10Mi")
			if got := h.recorded(theirs.Name); got != 1<<20 {
				t.Errorf("the record of the adopted volume says %d bytes, that of another %d", got,
					h.recorded(ours.Name))
			}
			h.adopts("--undo")
			w.asBefore(before)
			h.wantPromised(20 << 20) // to the others
		})
	}
}
