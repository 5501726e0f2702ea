package packaging

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

var confined = Options{Namespace: "s", Provisioner: "p",
	Confine: Confinement{Paths: []string{"/srv"}}}

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
	operations := map[string]string{"create": "CREATE", "update": "UPDATE", "patch": "UPDATE",
		"delete": "DELETE"}
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

// Each policy is of this identity alone, and closed for it; no other object is looked for in
// anybody's request.
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
		want := []admissionv1.MatchCondition{{Name: "daemon",
			Expression: "request.userInfo.username == 'system:serviceaccount:s:hostpath-provisioner'"}}
		if !reflect.DeepEqual(p.Spec.MatchConditions, want) {
			t.Errorf("%s: %+v", p.Name, p.Spec.MatchConditions)
		}
		if p.Spec.ParamKind != nil {
			t.Errorf("%s: everybody's requests need the object %+v", p.Name, p.Spec.ParamKind)
		}
		if p.Spec.Validations[0].Expression != isNodes.condition {
			t.Errorf("%s: a token that is no node's: %s", p.Name, p.Spec.Validations[0].Expression)
		}
		b := bindings[p.Name].Spec
		if !slices.Equal(b.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny}) ||
			b.MatchResources != nil || b.ParamRef != nil {
			t.Errorf("%s: bound by %+v", p.Name, b)
		}
	}
}

// A policy of what the daemons write in their own namespace alone is looked at for no other
// namespace's requests: those of
// kubelets and of the control plane are leases, too.
func TestOwnNamespace(t *testing.T) {
	own := map[string]string{"kubernetes.io/metadata.name": "s"}
	for _, p := range of[*admissionv1.ValidatingAdmissionPolicy](t, confined) {
		resource := p.Spec.MatchConstraints.ResourceRules[0].Resources[0]
		inOwn := slices.ContainsFunc(rights, func(r right) bool {
			return r.reach == ownNamespace &&
				r.resource == resource
		})
		if selector := p.Spec.MatchConstraints.NamespaceSelector; (selector != nil &&
			maps.Equal(selector.MatchLabels, own)) != inOwn {
			t.Errorf("%s: %+v", p.Name, selector)
		}
	}
}

// The lists have what was asked for, in each policy the same.
func TestLists(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		want    Lists // beside what is empty
	}{
		"a pool": {Options{Confine: Confinement{Paths: []string{"/srv/fast"}}},
			Lists{"paths": `["/srv/fast"]`}},
		"two": {Options{Confine: Confinement{Paths: []string{"/srv/*", "/mnt"}}},
			Lists{"paths": `["/srv/*","/mnt"]`}},
		"each scope": {Options{Confine: Confinement{SharedPaths: []string{"/a"},
			EveryNodePaths: []string{"/b"}}}, Lists{"sharedPaths": `["/a"]`, "everyNodePaths": `["/b"]`}},
		"aliases": {Options{Confine: Confinement{Paths: []string{"/a"},
			Aliases: []string{"x.example/y", "a",
				"p"}}}, Lists{"paths": `["/a"]`, "provisioners": `["a","p","x.example/y"]`}},
		"a host name": {Options{Confine: Confinement{Paths: []string{"/a"},
			Hostnames: map[string]string{"node-a.example": "1"}}}, Lists{"paths": `["/a"]`, "hostnames": `{"node-a.example":"1"}`}},
		"a prefix": {Options{ClassPrefix: "b", Confine: Confinement{Paths: []string{"/a"},
			Classes: []string{"c",
				"a*"}}}, Lists{"paths": `["/a"]`, "classes": `["a*","b","b-*","c"]`}},
		"names like the places of names": {Options{Confine: Confinement{Paths: []string{"/CLASS",
			"/@paths@ 'a' \"b\" \\", "/NAMESPACE"}}},
			Lists{"paths": `["/CLASS","/@paths@ 'a' \"b\" \\","/NAMESPACE"]`}},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.Namespace, c.options.Provisioner = "s", "p"
			want, got := Lists{"provisioners": `["p"]`, "paths": "[]", "sharedPaths": "[]",
				"everyNodePaths": "[]", "classes": "[]", "audiences": "[]", "hostnames": "{}"}, Lists{}
			maps.Copy(want, c.want)
			for _, p := range of[*admissionv1.ValidatingAdmissionPolicy](t, c.options) {
				if !got.Add(p.Spec) {
					t.Errorf("%s has other lists than %v", p.Name, got)
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
	for _, o := range []Options{{Namespace: "s", Provisioner: "p"},
		{Namespace: "s", Provisioner: "p", Confine: Confinement{Aliases: []string{"a"}}}} {
		if text := Manifests(o); strings.Contains(text, "kind: ValidatingAdmission") ||
			strings.Contains(text, "serviceaccounts/token") {
			t.Errorf("nothing is confined, and there is\n%s", text)
		}
	}
}

// Lists that cannot be read, or differ between policies, are none.
func TestListsDiffer(t *testing.T) {
	spec := func(name, is string) admissionv1.ValidatingAdmissionPolicySpec {
		return admissionv1.ValidatingAdmissionPolicySpec{Variables: []admissionv1.Variable{{Name: "now",
			Expression: "object"}, {Name: name, Expression: is}}}
	}
	l := Lists{}
	if !l.Add(spec("paths", `["/a"]`)) || !l.Add(spec("paths", `["/a"]`)) ||
		!l.Add(spec("hostnames", `{"a":"b"}`)) {
		t.Errorf("%v", l)
	}
	if l.Add(spec("paths", `["/b"]`)) || l.Add(spec("classes", `params.data`)) {
		t.Errorf("%v", l)
	}
	if !slices.Equal(l.Texts("paths"), []string{"/a"}) || l.Texts("classes") != nil ||
		!maps.Equal(l.Hostnames(), map[string]string{"a": "b"}) || (Lists{}).Hostnames() != nil {
		t.Errorf("%v", l)
	}
}

// One label is on each object, but on no namespace that may have what is not ours.
func TestOneLabel(t *testing.T) {
	for namespace, own := range map[string]bool{"hostpath-provisioner": true, "storage": false} {
		o := Options{Namespace: namespace, Provisioner: "p", TokenSecret: true, ClaimIndex: true,
			Confine: Confinement{Paths: []string{"/srv"}}}
		for _, text := range strings.Split(Manifests(o), "---\n")[1:] {
			var object metav1.PartialObjectMetadata
			if err := yaml.Unmarshal([]byte(text), &object); err != nil {
				t.Fatal(err)
			}
			if labelled := object.Labels["app.kubernetes.io/part-of"] == "hostpath-provisioner"; labelled == (object.Kind == "Namespace" &&
				!own) {
				t.Errorf("%s %s in %s: labelled %t", object.Kind, object.Name, namespace, labelled)
			}
		}
	}
}

// Rights are what the roles have.
func TestRights(t *testing.T) {
	for name, o := range map[string]Options{"confined": confined,
		"not confined": {Namespace: "s", Provisioner: "p"}, "no driver": {Namespace: "s",
			Provisioner: "a.example/p"}} {
		t.Run(name, func(t *testing.T) {
			got, want := map[string]bool{}, map[string]bool{}
			for _, r := range Rights(o) {
				resource := strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/")
				got[strings.Join([]string{r.Namespace, r.Group, resource, r.Name, r.Verb},
					" ")] = true
				if r.Why == "" {
					t.Errorf("%s of %s has no reason", r.Verb, resource)
				}
			}
			add := func(namespace string, rules []rbacv1.PolicyRule) {
				for _, r := range rules {
					for _, name := range append(r.ResourceNames,
						"")[:max(1, len(r.ResourceNames))] {
						for _, verb := range r.Verbs {
							want[strings.Join([]string{namespace, r.APIGroups[0], r.Resources[0],
								name, verb}, " ")] = true
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
				t.Errorf("got\n%q\nwant\n%q", slices.Sorted(maps.Keys(got)),
					slices.Sorted(maps.Keys(want)))
			}
		})
	}
}

// Each namespace has policies of its own, and the longest name of one makes names that objects can
// have.
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
	for name, got := range map[string]string{"annotations": unchanged("a/b", "c")[1].condition,
		"fields": sameBut("x", "y", "a/b", "c")} {
		if strings.Count(got, "['a/b', 'c']") != 2 || strings.Count(got, ".all(k, ") != 2 {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Policies are what the manifests have, once the API server has set what they leave out. A change
// of either is another policy.
func TestPoliciesAreThoseOfTheManifests(t *testing.T) {
	known := map[string]Policy{}
	for _, p := range Policies("s") {
		known[p.Name] = p
	}
	equivalent, all := admissionv1.Equivalent, admissionv1.AllScopes
	for _, p := range of[*admissionv1.ValidatingAdmissionPolicy](t, confined) {
		match := p.Spec.MatchConstraints
		match.ObjectSelector, match.MatchPolicy = &metav1.LabelSelector{}, &equivalent
		if match.NamespaceSelector == nil {
			match.NamespaceSelector = &metav1.LabelSelector{}
		}
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
