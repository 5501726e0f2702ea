package e2e

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt/why"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
)

// why asks about an object, and wants each of these texts on the page.
func (h *host) why(kubeconfig, kind, name string, want ...string) fixture.Answer {
	h.w.Helper()
	said := h.call("why", kind, name, "-n", h.w.Namespace, "--kubeconfig", kubeconfig)
	return said.Ends(0, want...)
}

// Who asks why a pod, a claim, a volume or a snapshot waits is told whose turn it is, what each
// node could give, and what helps.
func TestWhy(t *testing.T) {
	w := withDriver(t)
	s := w.snapshots()
	a, b := w.newHost("a", `snapshots = "copy"`).run(), w.newHost("b").run()
	admin := w.killer().kubeconfig()
	waits, atOnce := w.Class("waits", wait), w.Class("now", immediate)

	w.claim("idle", waits, "1Mi")
	a.why(admin, "pvc", "idle", "waits for: a pod that uses it")

	large := w.wanted("large", waits, "900Gi", a.node, b.node)
	w.event(large, "NoNodeFits")
	a.why(admin, "pod", "large", "waits for: claim "+w.Namespace+"/large", "too little",
		"the scheduler, which chooses a node for pod large", "explain NoNodeFits", a.node, b.node).Lacks("not seen")

	w.Must(w.AddNode(w.Ctx, w.Namespace+"-bare", nil))
	w.claim("direct", waits, "1Mi")
	w.podOn(w.Namespace+"-bare", "direct", "direct")
	a.why(admin, "pvc", "direct", "the daemon of node "+w.Namespace+"-bare, which pod direct names")

	w.claim("orphan", "no-such-class", "1Mi")
	a.why(admin, "pvc", "orphan", `its class "no-such-class", which does not exist`)

	data := a.made("data", atOnce)
	a.why(admin, "pvc", "data", "Bound", "waits for: nothing", "of node "+a.node)
	w.whyAsJSON(a, admin, data)
	w.DeleteVolume(data.Name)
	a.why(admin, "pv", data.Name, "its claim "+w.Namespace+"/data, which still exists")

	s.take("snap", data)
	a.why(admin, "volumesnapshot", "snap", "ready", "waits for: nothing")

	a.loses()
	a.why(admin, "pv", data.Name, "node "+a.node+", which does not exist",
		"import POOL --from-node "+a.node, "forget-node "+a.node)

	reader := w.reader()
	b.why(reader, "pvc", "large", "what its class says, which this user may not read",
		"not seen: pods: this user may not read them",
		"not seen: storage classes", "not seen: events")
	seen := w.whyJSON(b, reader, "large")
	if !slices.Contains(seen.Unseen, "events: this user may not read them") {
		w.Errorf("a user who may not read events gets %+v", seen)
	}
}

// whyJSON asks about a claim for a program.
func (w *environment) whyJSON(h *host, kubeconfig, claim string) (page why.Page) {
	w.Helper()
	out, code := h.Call("why", "pvc/"+claim, "--json", "-n", w.Namespace, "--kubeconfig", kubeconfig)
	var schema struct{ Schema int }
	w.Must(json.Unmarshal([]byte(out), &schema))
	w.Must(json.Unmarshal([]byte(out), &page))
	if code != 0 || schema.Schema != daemon.SchemaVersion {
		w.Errorf("why --json: exit code %d, schema %d", code, schema.Schema)
	}
	return page
}

// whyAsJSON wants the events of a claim and of its volume in what programs read.
func (w *environment) whyAsJSON(h *host, kubeconfig string, volume *corev1.PersistentVolume) {
	w.Helper()
	claim := w.get("data")
	w.event(claim, plan.ReasonProvisioningSucceeded)
	w.marked(volume)
	page := w.whyJSON(h, kubeconfig, "data")
	if len(page.Parts) != 1 || page.Parts[0].Object != "volume "+volume.Name ||
		page.Object != "claim "+w.Namespace+"/data" {
		w.Fatalf("the claim and its volume are %+v", page)
	}
	has := func(page why.Page, reason string) bool {
		return slices.ContainsFunc(page.Events, func(e why.Event) bool {
			return e.Reason == reason && e.Count > 0 && e.Message != "" &&
				time.Since(e.At) < time.Hour
		})
	}
	if !has(page, plan.ReasonProvisioningSucceeded) || !has(page.Parts[0], "Marked") ||
		len(page.Unseen) > 0 {
		w.Errorf("the events are %+v", page)
	}
}

// marked makes an event of another program about a volume.
func (w *environment) marked(volume *corev1.PersistentVolume) {
	w.Helper()
	createIn(w, w.Client().CoreV1().Events("default"), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "marked-", Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolume", Name: volume.Name,
			UID: volume.UID},
		Type: corev1.EventTypeNormal, Reason: "Marked", Message: "by a person", Count: 1,
		LastTimestamp: metav1.Now(),
	})
}

// reader writes a kubeconfig of who may read claims alone.
func (w *environment) reader() string {
	w.Helper()
	const name = "reader"
	file := hosttestDir(w.T, "reader") + "/kubeconfig"
	account := w.account(name, file)
	createIn(w, w.Client().RbacV1().Roles(w.Namespace), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Verbs: []string{"get"},
			Resources: []string{"persistentvolumeclaims"}}},
	})
	createIn(w, w.Client().RbacV1().RoleBindings(w.Namespace), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{account},
	})
	return file
}
