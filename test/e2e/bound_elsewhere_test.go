package e2e

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A daemon dies when it has made a directory, and before the object; and the claim is bound to a
// volume that was kept for it. The empty directory goes, and so does what was promised for it.
func TestBoundElsewhereBeforeItsObject(t *testing.T) {
	w := newEnvironmentUnbound(t)
	h, class := w.newHost("a").run(), w.Class("c", wait)
	pv := w.made(w.claim("data", class, "1Mi", annotate(selectedNode, h.node)))
	h.stop()
	w.ForceOff(pv.Name)
	kept, claim := w.keptFor("data", class, corev1.VolumeBound), w.get("data")
	kept.Spec.ClaimRef.UID, claim.Spec.VolumeName = claim.UID, kept.Name
	updateIn(w, w.pvs(), kept)
	updateIn(w, w.pvcs(), claim)
	h.run()
	w.vanishes(filepath.Join(h.mount, pv.Name))
}
