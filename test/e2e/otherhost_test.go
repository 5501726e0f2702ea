package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// A host that has another one's name works in no pool, though its disk is new and its credential is
// good: what the Node's kubelet reports is not this host. After a boot that is so until kubelet has
// started.
func TestNodeOfOtherHost(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a")
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	w.Must(err)
	report := func(id string) {
		patch := fmt.Sprintf(`{"status":{"nodeInfo":{"bootID":%q}}}`, id)
		_, err := w.Client().CoreV1().Nodes().Patch(w.Ctx, h.node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		w.Must(err)
	}
	report("11111111-2222-3333-4444-555555555555")
	h.run()
	h.wantClosed("OtherHost", `is reported by a kubelet with the boot ID "11111111-2222-3333-4444-555555555555"`)
	if m := h.marker(h.ours("pool.json")); m["node"] != nil {
		t.Errorf("the marker took the name of another host's node: %v", m)
	}
	w.refused(w.claim("data", w.Class("c", immediate), "8Mi"), "PoolClosed")
	h.wantTree()
	report(strings.TrimSpace(string(boot)))
	pv := w.Bound("data")
	report("11111111-2222-3333-4444-555555555555")
	w.Must(h.WaitStatus(w.Soon(), "pool fast is closed"))
	w.DeleteClaim("data")
	_, err = w.WaitVolumePhase(w.Soon(), pv.Name, corev1.VolumeReleased)
	w.Must(err)
	h.wantTree(pool.Of(pv.Name)...)
	report(strings.TrimSpace(string(boot)))
	w.Must(w.WaitVolumeGone(w.Soon(), pv.Name))
}
