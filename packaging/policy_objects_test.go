package packaging

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Whatever is changed in a policy makes it another one: check --cluster names it.
func TestChangedPolicies(t *testing.T) {
	ignore := admissionv1.Ignore
	for name, change := range map[string]func(*admissionv1.ValidatingAdmissionPolicySpec){
		"it fails open":              func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.FailurePolicy = &ignore },
		"it has parameters":          func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.ParamKind = &admissionv1.ParamKind{} },
		"it is for another identity": func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.MatchConditions[0].Expression = "false" },
		"it is for any identity":     func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.MatchConditions = nil },
		"it is for another resource": func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.MatchConstraints.ResourceRules[0].Resources[0] = "x"
		},
		"it is for another operation": func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.MatchConstraints.ResourceRules[0].Operations = nil
		},
		"it leaves namespaces out": func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		},
		"it leaves objects out": func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.MatchConstraints.ExcludeResourceRules = s.MatchConstraints.ResourceRules
		},
		"a variable is another": func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.Variables[len(s.Variables)-1].Expression = "'node-a'"
		},
		"a variable is missing":   func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.Variables = s.Variables[1:] },
		"a condition is another":  func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.Validations[0].Expression = "true" },
		"a condition is missing":  func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.Validations = s.Validations[1:] },
		"what it says is another": func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.Validations[0].Message = "x" },
	} {
		for _, p := range Policies("s") {
			changed := p.policy.DeepCopy()
			if !p.SamePolicy(*changed) {
				t.Fatalf("%s is not the same as itself", p.Name)
			}
			if change(changed); p.SamePolicy(*changed) {
				t.Errorf("%s: %s, and it is the same", p.Name, name)
			}
		}
	}
}

// What is in its lists makes it no other one.
func TestOtherLists(t *testing.T) {
	for _, p := range Policies("s") {
		changed := p.policy.DeepCopy()
		for i, v := range changed.Variables {
			if isList(v.Name) {
				changed.Variables[i].Expression = `["x"]`
			}
		}
		if !p.SamePolicy(*changed) {
			t.Errorf("%s with other lists is another one", p.Name)
		}
		changed.Variables = nil
		if p.SamePolicy(*changed) || ReadsParameters(*changed) {
			t.Errorf("%s without variables is the same", p.Name)
		}
	}
}

// The same of bindings.
func TestChangedBindings(t *testing.T) {
	for name, change := range map[string]func(*admissionv1.ValidatingAdmissionPolicyBindingSpec){
		"of another policy": func(s *admissionv1.ValidatingAdmissionPolicyBindingSpec) { s.PolicyName = "x" },
		"with a ConfigMap": func(s *admissionv1.ValidatingAdmissionPolicyBindingSpec) {
			s.ParamRef = &admissionv1.ParamRef{Name: "x"}
		},
		"that refuses nothing": func(s *admissionv1.ValidatingAdmissionPolicyBindingSpec) { s.ValidationActions = nil },
		"for some resources alone": func(s *admissionv1.ValidatingAdmissionPolicyBindingSpec) {
			s.MatchResources = &admissionv1.MatchResources{}
		},
	} {
		for _, p := range Policies("s") {
			changed := p.binding.DeepCopy()
			if !p.SameBinding(*changed) {
				t.Fatalf("the binding of %s is not the same as itself", p.Name)
			}
			if change(changed); p.SameBinding(*changed) {
				t.Errorf("%s: a binding %s, and it is the same", p.Name, name)
			}
		}
	}
}

// Each policy of a namespace can be read by name, and its binding, and no other.
func TestPoliciesCanBeRead(t *testing.T) {
	may := map[string][]string{}
	for _, r := range Rights(confined) {
		if strings.HasPrefix(r.Resource, "validatingadmission") {
			may[r.Verb+" "+r.Resource] = append(may[r.Verb+" "+r.Resource], r.Name)
		}
	}
	var names []string
	for _, p := range Policies(confined.Namespace) {
		names = append(names, p.Name)
	}
	for _, right := range []string{"get validatingadmissionpolicies",
		"get validatingadmissionpolicybindings"} {
		if !slices.Equal(may[right], names) {
			t.Errorf("%s: %q, want %q", right, may[right], names)
		}
	}
	if len(may) != 2 {
		t.Errorf("more than to read them: %v", may)
	}
}
