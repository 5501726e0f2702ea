package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// reported has the Node say which boot its host has, as a kubelet does; "": nothing.
func (h *host) reported(id string) {
	h.w.Helper()
	patch := fmt.Sprintf(`{"status":{"nodeInfo":{"bootID":%q}}}`, id)
	patchIn(h.w, h.w.nodes(), h.node, patch, "status")
}

// A host that has another one's name works in no pool, though its disk is new and its credential is
// good: what the Node's kubelet reports is not this host. After a boot that is so until kubelet has
// started.
func TestNodeOfOtherHost(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a")
	boot := need(os.ReadFile("/proc/sys/kernel/random/boot_id"))(w)
	report := h.reported
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
	w.Releases("data", pv.Name)
	h.wantTree(pool.Of(pv.Name)...)
	report(strings.TrimSpace(string(boot)))
	w.Must(w.WaitVolumeGone(w.Soon(), pv.Name))
}

// A Node without a kubelet says nothing of its host. Whoever has the node's lease has the name: a
// host that comes second works in no pool, until the first is silent or its lease was deleted; one
// whose name was taken meanwhile stops. A package that is removed takes the lease with it.
func TestTwoHostsOfOneName(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a")
	h.reported("")
	leases := w.leases()
	name := "hostpath-provisioner-node." + h.node
	other := h.node + "_0badcafe"
	taken := func() {
		createIn(w, leases, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &other},
		})
	}
	free := func() { w.Must(leases.Delete(w.Ctx, name, metav1.DeleteOptions{})) }
	taken()
	const asked = "volume.kubernetes.io/storage-provisioner"
	claim := w.claim("data", w.Class("c", immediate), "8Mi", annotate(provisionOnNode, h.node))
	w.Eventually("the claim waits for its provisioner", func() bool { // before the daemon runs
		return w.get("data").Annotations[asked] != ""
	})
	h.run()
	h.wantClosed("OtherHost", "holds its lease, as \""+other+"\"")
	w.refused(claim, "PoolClosed")
	h.wantTree()
	free()
	pv := w.Bound("data")
	w.Eventually("the lease is this host's", func() bool {
		l, err := leases.Get(w.Ctx, name, metav1.GetOptions{})
		return err == nil && l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != other &&
			strings.HasPrefix(*l.Spec.HolderIdentity, h.node+"_") &&
			l.Labels["hostpath-provisioner/node"] == h.node
	})
	free()
	taken()
	w.Must(h.WaitStatus(w.unhurried(), "pool fast is closed")) // it renews its lease twice a minute
	w.Releases("data", pv.Name)
	h.wantTree(pool.Of(pv.Name)...)
	free()
	w.Must(w.WaitVolumeGone(w.unhurried(), pv.Name))
	h.Kill()
	h.call("withdraw-capacity").Ends(0)
	if _, err := leases.Get(w.Ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the lease after that: %v", err)
	}
}
