package packaging

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

var confined = Options{Namespace: "s", Provisioner: "p", Confine: Confinement{Paths: []string{"/srv"}}}

// of returns the parsed objects of a kind.
func of[T any](t *testing.T, o Options) (all []T) {
	t.Helper()
	_, found := objects(t, Manifests(o))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if one, is := found[name].(T); is {
			all = append(all, one)
		}
	}
	return all
}

// Whatever RBAC lets the identity write, a policy judges.
func TestEachWriteHasAPolicy(t *testing.T) {
	judged := map[string]bool{}
	for _, p := range of[*admissionv1.ValidatingAdmissionPolicy](t, confined) {
		for _, r := range p.Spec.MatchConstraints.ResourceRules {
			for _, operation := range r.Operations {
				judged[r.APIGroups[0]+"/"+r.Resources[0]+" "+string(operation)] = true
			}
		}
	}
	operations := map[string]string{"create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE"}
	writes := 0
	for _, r := range Rights(confined) {
		resource := r.Resource
		if r.Subresource != "" {
			resource += "/" + r.Subresource
		}
		operation, write := operations[r.Verb]
		if !write {
			continue
		}
		writes++
		if !judged[r.Group+"/"+resource+" "+operation] {
			t.Errorf("no policy judges %s of %s", r.Verb, resource)
		}
	}
	if writes < 15 {
		t.Errorf("%d writes", writes)
	}
}

// Each policy is of this identity alone, fails closed, and refuses also where its parameters are missing.
func TestPoliciesFailClosed(t *testing.T) {
	bindings := map[string]*admissionv1.ValidatingAdmissionPolicyBinding{}
	for _, b := range of[*admissionv1.ValidatingAdmissionPolicyBinding](t, confined) {
		bindings[b.Spec.PolicyName] = b
	}
	all := of[*admissionv1.ValidatingAdmissionPolicy](t, confined)
	if len(all) != len(policies) || len(bindings) != len(policies) {
		t.Fatalf("%d policies, %d bindings", len(all), len(bindings))
	}
	for _, p := range all {
		if f := p.Spec.FailurePolicy; f == nil || *f != admissionv1.Fail {
			t.Errorf("%s: the failure policy is %v", p.Name, f)
		}
		want := []admissionv1.MatchCondition{{Name: "daemon", Expression: "request.userInfo.username == 'system:serviceaccount:s:hostpath-provisioner'"}}
		if !reflect.DeepEqual(p.Spec.MatchConditions, want) {
			t.Errorf("%s: %+v", p.Name, p.Spec.MatchConditions)
		}
		if p.Spec.Validations[0].Expression != isNodes.condition {
			t.Errorf("%s: a token that is no node's: %s", p.Name, p.Spec.Validations[0].Expression)
		}
		b := bindings[p.Name].Spec
		if ref := b.ParamRef; ref == nil || ref.Name != "hostpath-provisioner-confinement" || ref.Namespace != "s" || *ref.ParameterNotFoundAction != admissionv1.DenyAction {
			t.Errorf("%s: the parameters are %+v", p.Name, b.ParamRef)
		}
		if !slices.Equal(b.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny}) || b.MatchResources != nil {
			t.Errorf("%s: bound by %+v", p.Name, b)
		}
	}
}

// The parameters have what was asked for, one entry a line.
func TestParameters(t *testing.T) {
	for name, c := range map[string]struct {
		confine Confinement
		want    map[string]string
	}{
		"a pool":      {Confinement{Paths: []string{"/srv/fast"}}, map[string]string{"provisioners": "p", "paths": "/srv/fast"}},
		"two":         {Confinement{Paths: []string{"/srv/fast", "/mnt"}}, map[string]string{"provisioners": "p", "paths": "/srv/fast\n/mnt"}},
		"each scope":  {Confinement{SharedPaths: []string{"/a"}, EveryNodePaths: []string{"/b"}}, map[string]string{"provisioners": "p", "shared-paths": "/a", "every-node-paths": "/b"}},
		"aliases":     {Confinement{Paths: []string{"/a"}, Aliases: []string{"x.example/y", "a", "p"}}, map[string]string{"provisioners": "a\np\nx.example/y", "paths": "/a"}},
		"a host name": {Confinement{Paths: []string{"/a"}, Hostnames: map[string]string{"node-a.example": "1"}}, map[string]string{"provisioners": "p", "paths": "/a", "hostname.node-a.example": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := of[*corev1.ConfigMap](t, Options{Namespace: "s", Provisioner: "p", Confine: c.confine})
			if len(all) != 1 {
				t.Fatalf("%d objects", len(all))
			}
			got := map[string]string{}
			for key, value := range all[0].Data {
				got[key] = strings.TrimSuffix(value, "\n") // which objects cuts off the last
			}
			if !maps.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	for _, o := range []Options{{Namespace: "s", Provisioner: "p"}, {Namespace: "s", Provisioner: "p", Confine: Confinement{Aliases: []string{"a"}}}} {
		if text := Manifests(o); strings.Contains(text, "kind: ValidatingAdmission") || strings.Contains(text, "kind: ConfigMap") || strings.Contains(text, "serviceaccounts/token") {
			t.Errorf("nothing is confined, and there is\n%s", text)
		}
	}
}

// Rights are what the roles have.
func TestRights(t *testing.T) {
	for name, o := range map[string]Options{"confined": confined, "not confined": {Namespace: "s", Provisioner: "p"}, "no driver": {Namespace: "s", Provisioner: "a.example/p"}} {
		t.Run(name, func(t *testing.T) {
			got, want := map[string]bool{}, map[string]bool{}
			for _, r := range Rights(o) {
				resource := strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/")
				got[strings.Join([]string{r.Namespace, r.Group, resource, r.Name, r.Verb}, " ")] = true
				if r.Why == "" {
					t.Errorf("%s of %s has no reason", r.Verb, resource)
				}
			}
			add := func(namespace string, rules []rbacv1.PolicyRule) {
				for _, r := range rules {
					for _, name := range append(r.ResourceNames, "")[:max(1, len(r.ResourceNames))] {
						for _, verb := range r.Verbs {
							want[strings.Join([]string{namespace, r.APIGroups[0], r.Resources[0], name, verb}, " ")] = true
						}
					}
				}
			}
			for _, r := range of[*rbacv1.ClusterRole](t, o) {
				add("", r.Rules)
			}
			for _, r := range of[*rbacv1.Role](t, o) {
				add(r.Namespace, r.Rules)
			}
			if !maps.Equal(got, want) || len(got) < 20 {
				t.Errorf("got\n%q\nwant\n%q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
			}
		})
	}
}

// Each namespace has policies of its own, and the longest name of one makes names that objects can have.
func TestNamesOfPolicies(t *testing.T) {
	seen := map[string]bool{}
	for _, namespace := range []string{"a", "b", strings.Repeat("n", 63)} {
		o := confined
		o.Namespace = namespace
		for _, p := range of[*admissionv1.ValidatingAdmissionPolicy](t, o) {
			if seen[p.Name] || len(validation.IsDNS1123Subdomain(p.Name)) > 0 {
				t.Errorf("%s is there already, or is no name", p.Name)
			}
			seen[p.Name] = true
		}
	}
}

// A condition that a key may change, and one that nothing may.
func TestUnchanged(t *testing.T) {
	if got := unchanged()[1].condition; got != "variables.annotations == variables.wasAnnotations" {
		t.Error(got)
	}
	for name, got := range map[string]string{"annotations": unchanged("a/b", "c")[1].condition, "fields": sameBut("x", "y", "a/b", "c")} {
		if strings.Count(got, "['a/b', 'c']") != 2 || strings.Count(got, ".all(k, ") != 2 {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Policies are what the manifests have, once the API server has set what they leave out. A change of either is another policy.
func TestPoliciesAreThoseOfTheManifests(t *testing.T) {
	known := map[string]Policy{}
	for _, p := range Policies("s") {
		known[p.Name] = p
	}
	equivalent, all := admissionv1.Equivalent, admissionv1.AllScopes
	for _, p := range of[*admissionv1.ValidatingAdmissionPolicy](t, confined) {
		match := p.Spec.MatchConstraints
		match.NamespaceSelector, match.ObjectSelector, match.MatchPolicy = &metav1.LabelSelector{}, &metav1.LabelSelector{}, &equivalent
		match.ResourceRules[0].Scope = &all
		if !known[p.Name].SamePolicy(p.Spec) {
			t.Errorf("%s is another one", p.Name)
		}
		p.Spec.Validations = p.Spec.Validations[1:]
		if known[p.Name].SamePolicy(p.Spec) {
			t.Errorf("%s without its first rule is the same", p.Name)
		}
	}
	for _, b := range of[*admissionv1.ValidatingAdmissionPolicyBinding](t, confined) {
		if !known[b.Name].SameBinding(b.Spec) {
			t.Errorf("the binding %s is another one", b.Name)
		}
		b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Audit}
		if known[b.Name].SameBinding(b.Spec) {
			t.Errorf("the binding %s that refuses nothing is the same", b.Name)
		}
	}
	if len(known) != len(policies) {
		t.Errorf("%d policies", len(known))
	}
}
