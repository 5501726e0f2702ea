package packaging

import (
	"encoding/json"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Policy is a policy and its binding as the API server has them, with each field that the server
// itself sets.
type Policy struct {
	Name    string // of both objects
	policy  admissionv1.ValidatingAdmissionPolicySpec
	binding admissionv1.ValidatingAdmissionPolicyBindingSpec
}

// Policies are those of this version for the identity in a namespace, which `manifests` prints.
// What they let the identity have is in their lists alone: the rest is the same for each cluster.
func Policies(namespace string) (all []Policy) {
	o := Options{Namespace: namespace}
	for _, p := range policies {
		all = append(all, Policy{Name: o.fill(p.object()), policy: p.spec(o), binding: p.bindingSpec(o)})
	}
	return all
}

// SamePolicy reports whether the cluster's policy is this one, whatever is in its lists.
func (p Policy) SamePolicy(spec admissionv1.ValidatingAdmissionPolicySpec) bool {
	known := p.policy.DeepCopy()
	for i, v := range known.Variables {
		if isList(v.Name) && i < len(spec.Variables) && json.Valid([]byte(spec.Variables[i].Expression)) {
			known.Variables[i].Expression = spec.Variables[i].Expression
		}
	}
	return same(*known, spec)
}

// ReadsParameters reports whether a policy is of an earlier version, which has the API server look
// for a ConfigMap in everybody's requests.
func ReadsParameters(spec admissionv1.ValidatingAdmissionPolicySpec) bool {
	return spec.ParamKind != nil
}

// SameBinding reports whether the cluster's binding is this one's.
func (p Policy) SameBinding(spec admissionv1.ValidatingAdmissionPolicyBindingSpec) bool {
	return same(p.binding, spec)
}

// same compares what is written, so that an absent list is as good as an empty one.
func same(a, b any) bool {
	one, err := json.Marshal(a)
	other, otherErr := json.Marshal(b)
	return err == nil && otherErr == nil && string(one) == string(other)
}

// spec is the policy as the API server returns it (kubernetes,
// pkg/apis/admissionregistration/v1/defaults.go).
func (p policy) spec(o Options) admissionv1.ValidatingAdmissionPolicySpec {
	fail, equivalent, all, forbidden := admissionv1.Fail, admissionv1.Equivalent, admissionv1.AllScopes, metav1.StatusReasonForbidden
	spec := admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: &fail,
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}, MatchPolicy: &equivalent,
			ResourceRules: []admissionv1.NamedRuleWithOperations{{ResourceNames: p.names, RuleWithOperations: admissionv1.RuleWithOperations{
				Rule: admissionv1.Rule{APIGroups: []string{p.group}, APIVersions: []string{"*"}, Resources: []string{p.resource}, Scope: &all},
			}}},
		},
		MatchConditions: []admissionv1.MatchCondition{{Name: "daemon", Expression: o.fill(daemonCondition)}},
	}
	if p.own {
		spec.MatchConstraints.NamespaceSelector.MatchLabels = map[string]string{namespaceName: o.Namespace}
	}
	for _, operation := range p.operations {
		rule := &spec.MatchConstraints.ResourceRules[0]
		rule.Operations = append(rule.Operations, admissionv1.OperationType(operation))
	}
	for _, v := range p.allVariables() {
		spec.Variables = append(spec.Variables, admissionv1.Variable{Name: v.name, Expression: o.fill(oneLine(v.is))})
	}
	for _, r := range p.allRules() {
		spec.Validations = append(spec.Validations, admissionv1.Validation{Expression: o.fill(oneLine(r.condition)), Message: r.message, Reason: &forbidden})
	}
	return spec
}

// bindingSpec is the binding of the policy as the API server returns it.
func (p policy) bindingSpec(o Options) admissionv1.ValidatingAdmissionPolicyBindingSpec {
	return admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: o.fill(p.object()), ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}
}
