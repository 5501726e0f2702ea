package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// why asks about an object, and wants each of these texts on the page.
func (h *host) why(kubeconfig, kind, name string, want ...string) string {
	h.w.Helper()
	out, code := h.Call("why", kind, name, "-n", h.w.Namespace, "--kubeconfig", kubeconfig)
	if code != 0 {
		h.w.Errorf("why %s %s: exit code %d", kind, name, code)
	}
	for _, text := range want {
		if !strings.Contains(out, text) {
			h.w.Errorf("why %s %s: no %q in\n%s", kind, name, text, out)
		}
	}
	return out
}

// Who asks why a pod, a claim, a volume or a snapshot waits is told whose turn it is, what each
// node could give, and what helps.
func TestWhy(t *testing.T) {
	w := newEnvironment(t)
	w.driver()
	s := w.snapshots()
	a, b := w.newHost("a", `snapshots = "copy"`).run(), w.newHost("b").run()
	admin := w.killer().kubeconfig()
	waits, atOnce := w.Class("waits", wait), w.Class("now", immediate)

	w.claim("idle", waits, "1Mi")
	a.why(admin, "pvc", "idle", "waits for: a pod that uses it")

	large := w.claim("large", waits, "900Gi")
	w.pod("large", []string{a.node, b.node}, "large")
	_, err := w.WaitEvent(w.Soon(), large, "NoNodeFits")
	w.Must(err)
	page := a.why(admin, "pod", "large", "waits for: claim "+w.Namespace+"/large", "too little",
		"the scheduler, which chooses a node for pod large", "explain NoNodeFits", a.node, b.node)
	if strings.Contains(page, "not seen") {
		t.Errorf("an administrator does not see all:\n%s", page)
	}

	w.Must(w.AddNode(w.Ctx, w.Namespace+"-bare", nil))
	w.claim("direct", waits, "1Mi")
	w.podOn(w.Namespace+"-bare", "direct", "direct")
	a.why(admin, "pvc", "direct", "the daemon of node "+w.Namespace+"-bare, which pod direct names")

	w.claim("orphan", "no-such-class", "1Mi")
	a.why(admin, "pvc", "orphan", `its class "no-such-class", which does not exist`)

	data := a.made("data", atOnce)
	a.why(admin, "pvc", "data", "Bound", "waits for: nothing", "of node "+a.node)
	w.deleteVolume(data.Name)
	a.why(admin, "pv", data.Name, "its claim "+w.Namespace+"/data, which still exists")

	content := s.ask("snap", data, w.Provisioner, "Delete")
	s.ready("snap", content)
	a.why(admin, "volumesnapshot", "snap", "ready", "waits for: nothing")

	a.loses()
	a.why(admin, "pv", data.Name, "node "+a.node+", which does not exist",
		"import POOL --from-node "+a.node, "forget-node "+a.node)

	b.why(w.reader(), "pvc", "large", "what its class says, which this user may not read",
		"not seen: pods: this user may not read them",
		"not seen: storage classes", "not seen: events")
}

// reader writes a kubeconfig of who may read claims alone.
func (w *environment) reader() string {
	w.Helper()
	const name = "reader"
	_, err := w.Client().CoreV1().ServiceAccounts(w.Namespace).Create(w.Ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	w.Must(err)
	_, err = w.Client().RbacV1().Roles(w.Namespace).Create(w.Ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Verbs: []string{"get"},
			Resources: []string{"persistentvolumeclaims"}}},
	}, metav1.CreateOptions{})
	w.Must(err)
	_, err = w.Client().RbacV1().RoleBindings(w.Namespace).Create(w.Ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: w.Namespace, Name: name}},
	}, metav1.CreateOptions{})
	w.Must(err)
	file := hosttestDir(w.T, "reader") + "/kubeconfig"
	w.Must(w.ServiceAccountKubeconfig(w.Ctx, w.Namespace, name, "", file))
	return file
}
