package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// noted is what the pool's record of a volume says.
func (h *host) noted(pv string) (r record.Record) {
	h.w.Helper()
	text := need(os.ReadFile(h.record(pv)))(h.w)
	h.w.Must(json.Unmarshal(text, &r))
	return r
}

func (h *host) awaitRetained(pv string) {
	h.w.Helper()
	h.w.Eventually("the record of "+pv+" says that it is retained", func() bool {
		return h.noted(pv).Retained
	})
}

// held waits until an object has our finalizer, or has it no more.
func (w *environment) held(pv string, want bool) {
	w.Helper()
	w.Eventually(fmt.Sprintf("%s: our finalizer: %t", pv, want), func() bool {
		now, err := w.pvs().Get(w.Ctx, pv, metav1.GetOptions{})
		return err == nil && slices.Contains(now.Finalizers, finalizer) == want
	})
}

// A volume whose policy keeps its data needs no daemon to be deleted: kubectl delete pv does not
// wait for a node that is off. When the daemon is back, it keeps the data, an empty directory, too.
func TestRetainNeedsNoDaemon(t *testing.T) {
	w, h := running(t)
	class := w.Class("c", immediate, fixture.Policy(corev1.PersistentVolumeReclaimRetain))
	pv, empty := h.made("data", class), h.made("empty", class)
	w.Must(os.Remove(filepath.Join(h.mount, empty.Name, "data")))
	w.held(pv.Name, false)
	w.held(empty.Name, false)
	h.Kill()
	w.DeleteClaim("data", "empty")
	for _, name := range []string{pv.Name, empty.Name} {
		w.Phase(name, corev1.VolumeReleased)
		w.RemovesVolume(name)
	}
	h.call("volumes").Counts("retained", 2) // while the daemon is away
	h.run()
	for _, name := range []string{pv.Name, empty.Name} {
		h.awaitRetained(name)
	}
	other := h.made("other", w.Class("d", immediate))
	h.wantTree(pool.Of(pv.Name, empty.Name, other.Name)...)
}

// Deleted while the daemon runs; and the policy is changed, there and back.
func TestRetainAndDelete(t *testing.T) {
	w, h := running(t)
	keeping := fixture.Policy(corev1.PersistentVolumeReclaimRetain)
	kept := h.made("kept", w.Class("c", immediate, keeping))
	turned := h.made("turned", w.Class("d", immediate))
	policy := `{"spec":{"persistentVolumeReclaimPolicy":%q}}`
	w.held(kept.Name, false)
	w.held(turned.Name, true)
	w.PatchVolume(turned.Name, types.MergePatchType, fmt.Sprintf(policy, "Retain"))
	w.PatchVolume(kept.Name, types.MergePatchType, fmt.Sprintf(policy, "Delete"))
	w.held(turned.Name, false)
	w.held(kept.Name, true)
	w.Eventually("the records say so", func() bool {
		return !h.noted(kept.Name).Unheld && h.noted(turned.Name).Unheld
	})
	// Each object before its claim.
	for claim, pv := range map[string]string{"kept": kept.Name, "turned": turned.Name} {
		w.DeleteVolume(pv)
		w.Removes(claim, pv)
	}
	h.awaitRetained(turned.Name)
	h.wantTree(pool.Of(turned.Name)...)
}
