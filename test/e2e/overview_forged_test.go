package e2e

import (
	"fmt"
	"math"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What a daemon tells is no command for who reads it, and of a node whose clock is ahead nobody
// claims that it is not silent.
func TestOverviewForged(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a")
	admin := w.killer().kubeconfig()
	leases := w.leases()
	name := "hostpath-provisioner-node." + h.node
	w.kubectl(fmt.Sprintf(`kubectl create -f - <<END
{"apiVersion":"coordination.k8s.io/v1","kind":"Lease",
"metadata":{"name":%q,"namespace":"hostpath-provisioner"},"spec":{"holderIdentity":"%s_x"}}
END`, name, h.node))
	t.Cleanup(func() { _ = leases.Delete(w.Ctx, name, metav1.DeleteOptions{}) })
	tells := func(state string) {
		t.Helper()
		w.annotateLease(name, state)
	}
	for reason, want := range map[string]string{
		"gone": "unreadable", "x;reboot": "unreadable", "NoSuchReason": "NoSuchReason"} {
		tells(`{"time":"2100-01-01T00:00:00Z","reason":"` + reason + `","message":"m"}`)
		h.shows(admin, "nodes", h.node+"  ahead", "timedatectl")
		tells(`{"time":"` + now() + `","reason":"` + reason + `","message":"m"}`)
		h.shows(admin, "nodes", "node "+h.node+": "+want+": m")
		h.call("nodes", "--kubeconfig", admin).Lacks("explain", "forget-node")
	}
	tells("{")
	h.shows(admin, "nodes", h.node+"  unreadable", "of another version, or damaged")
	tells(`{"time":"` + now() + `","pools":[{"name":"a","volumes":9223372036854775807},
		{"name":"b","volumes":9223372036854775807}]}`)
	h.shows(admin, "nodes", h.node+"  ready", fmt.Sprint(2*math.MaxInt32))
	tells(`{"time":"` + now() + `","reason":"ReloadFailed","message":"m"}`)
	h.shows(admin, "nodes", "kubectl hostpath explain ReloadFailed")
}
