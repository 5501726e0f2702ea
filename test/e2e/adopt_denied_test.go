package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// denies makes a policy of the cluster about volumes, and returns what takes it away.
func (w *environment) denies(operation admissionv1.OperationType, unless, message string) func() {
	w.Helper()
	return w.deniesOf("", "persistentvolumes", operation, unless, message)
}

// deniesOf is the same about another resource.
func (w *environment) deniesOf(group, resource string, operation admissionv1.OperationType,
	unless, message string) (end func()) {
	w.Helper()
	policies, name, fail := w.Client().AdmissionregistrationV1(),
		w.Namespace+"-"+resource+"-"+strings.ToLower(string(operation)), admissionv1.Fail
	rule := admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"},
		Resources: []string{resource}}
	createIn(w, policies.ValidatingAdmissionPolicies(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{operation},
				Rule:       rule,
			}}}},
			Validations: []admissionv1.Validation{{Expression: unless, Message: message}},
		},
	})
	createIn(w, policies.ValidatingAdmissionPolicyBindings(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	})
	end = func() {
		_ = policies.ValidatingAdmissionPolicyBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
		_ = policies.ValidatingAdmissionPolicies().Delete(context.Background(), name, metav1.DeleteOptions{})
	}
	w.Cleanup(end)
	return end
}

// A policy of the cluster lets no client make local volumes: the driver's object stays as it
// is, and a dry run says so.
func TestAdoptFromCSIForbidden(t *testing.T) {
	w := newEnvironment(t)
	driver, fromCSI := w.ownDriver()
	h := w.newHost("a").aliased(driver)
	pv := h.madeByCSI(driver, "data")
	before := w.object(pv.Name)
	w.denies(admissionv1.Create,
		fmt.Sprintf("!has(object.spec.local) || object.metadata.name != %q", pv.Name),
		"no local here")
	forbidden := peerNamed("rancher").volume(h, "probe", func(v *corev1.PersistentVolume) {
		local := &corev1.LocalVolumeSource{Path: cluster.PathOf(v)}
		v.Name, v.Spec.PersistentVolumeSource = pv.Name, corev1.PersistentVolumeSource{Local: local}
	})
	w.Eventually("the policy is at work", func() bool {
		_, err := w.pvs().Create(w.Ctx, forbidden, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "no local here")
	})
	for _, flags := range [][]string{{fromCSI, "--dry-run"}, {fromCSI}} {
		h.call(append([]string{"adopt", "fast"}, flags...)...).Ends(1,
			"refused: the server would not take volume")
	}
	if now := w.object(pv.Name); now != before {
		t.Errorf("got\n%s\nwant\n%s", now, before)
	}
}

// A policy that confines the node's token lets it change no other program's volumes: a dry run
// says so, too, with what helps, there and back.
func TestAdoptDenied(t *testing.T) {
	w, h := aliasedHost(t)
	pv := peerNamed("rancher").made(h, "data")
	other := peerNamed("microk8s").made(h, "other")
	h.adopts()
	h.adopts("--undo")
	w.denies(admissionv1.Update,
		fmt.Sprintf(
			"object.metadata.name != %q || request.userInfo.username != 'system:serviceaccount:hostpath-provisioner:hostpath-provisioner'", pv.Name), "not yours")
	admin := "--kubeconfig=" + w.Kubeconfig()
	denied := func(flags ...string) bool {
		out, code := h.Call(append([]string{"adopt", "fast"}, flags...)...)
		return code == 1 && strings.Contains(out, "refused: ") && strings.Contains(out,
			"not yours") && strings.Contains(out, "name an administrator's with --kubeconfig") &&
			strings.Contains(out, "1 refused")
	}
	w.Eventually("a dry run says what the policy refuses", func() bool { return denied("--dry-run") })
	if !denied() {
		t.Error("adopted, or refused without a hint")
	}
	if w.Volume(other.Name).Labels["hostpath-provisioner/node"] == "" {
		t.Error("the other volume was not adopted")
	}
	h.adopts(admin)
	for _, flags := range [][]string{{"--undo", "--dry-run"}, {"--undo"}} {
		if !denied(flags...) {
			t.Errorf("%q: undone, or refused without a hint", flags)
		}
	}
	h.adopts("--undo", admin)
	w.unchanged(pv)
}
