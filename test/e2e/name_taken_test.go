package e2e

import (
	"testing"
	"time"
)

// A volume of the name that a claim's would get, which a stranger made, is named on the claim. When
// it is gone the claim is bound, whatever the watch does not bring.
func TestNameTaken(t *testing.T) {
	w, h := running(t)
	claim := w.claim("data", w.Class("c", wait), "8Mi")
	stranger := w.handMade("pvc-"+string(claim.UID), "other", "")
	stranger.Spec.ClaimRef = nil
	createIn(w, w.pvs(), stranger)
	w.pod("user", []string{h.node}, "data")
	w.event(claim, "VolumeNameTaken")
	w.DeleteVolume(stranger.Name)
	gone := time.Now()
	w.Must(w.WaitVolumeGone(w.Soon(), stranger.Name))
	w.Bound("data")
	t.Logf("bound %s after the stranger was deleted", time.Since(gone).Round(time.Millisecond))
}
