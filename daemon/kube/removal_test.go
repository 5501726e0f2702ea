package kube

import (
	"context"
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// An admission policy that refuses to let a volume go is heard: its response has the code of a
// patch whose test failed.
func TestRemovalThatAPolicyRefuses(t *testing.T) {
	ctx := t.Context()
	c, _ := newClient(t, Options{})
	pv := created(t, volume("audited", "policy", plan.Finalizer))
	const words = "volumes are kept until the audit is over"
	fail := admissionv1.Fail
	policies, bindings := plane.Client().AdmissionregistrationV1().ValidatingAdmissionPolicies(), plane.Client().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	name := metav1.ObjectMeta{Name: "keep-volumes"}
	_, err := policies.Create(ctx, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: name, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: &fail,
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
			ResourceNames: []string{pv.Name},
			RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"persistentvolumes"}},
			},
		}}},
		Validations: []admissionv1.Validation{{Expression: "false", Message: words}},
	}}, metav1.CreateOptions{})
	must(t, err)
	_, err = bindings.Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, errors.Join(bindings.Delete(context.Background(), name.Name, metav1.DeleteOptions{}), policies.Delete(context.Background(), name.Name, metav1.DeleteOptions{})))
	})
	eventually(t, "the policy is in force", func() bool {
		_, err := plane.Client().CoreV1().PersistentVolumes().Patch(ctx, pv.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil
	})
	err = unlessChanged(func() error { return c.RemoveVolume(ctx, pv) })
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), words) {
		t.Errorf("refused with %v", err)
	}
}
