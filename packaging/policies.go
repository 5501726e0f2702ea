package packaging

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// policy is a ValidatingAdmissionPolicy for what the daemon's identity writes in one resource.
type policy struct {
	name       string // of the object, before .NAMESPACE.hostpath-provisioner
	group      string // of the API, "" is the core
	resource   string
	operations []string
	own        bool       // in the daemons' namespace alone
	names      []string   // of the objects, none for all
	variables  []variable // beside the lists and the common ones
	rules      []rule
}

type variable struct{ name, is string }

// rule is a condition in CEL on one line or more, and what the API server responds where it does
// not hold.
type rule struct{ condition, message string }

// common variables: whose identity it is, and what the object is and was.
var common = []variable{
	{"node", `string(request.userInfo.?extra[?'authentication.kubernetes.io/node-name'][?0].orValue(''))`},
	{"hostname", `variables.hostnames[?variables.node].orValue(variables.node)`},
	{"anyProvisioner", `'*' in variables.provisioners`},
	{"now", `request.operation == 'DELETE' ? dyn(oldObject) : dyn(object)`},
	{"labels", `has(variables.now.metadata.labels) ? dyn(variables.now.metadata.labels) : dyn({})`},
	{"annotations", `has(variables.now.metadata.annotations) ? dyn(variables.now.metadata.annotations) : dyn({})`},
	{"finalizers", `has(variables.now.metadata.finalizers) ? dyn(variables.now.metadata.finalizers) : dyn([])`},
	{"owners", `has(variables.now.metadata.ownerReferences) ? dyn(variables.now.metadata.ownerReferences) : dyn([])`},
	{"was", `request.operation == 'CREATE' ? dyn(object) : dyn(oldObject)`},
	{"wasLabels", `has(variables.was.metadata.labels) ? dyn(variables.was.metadata.labels) : dyn({})`},
	{"wasAnnotations", `has(variables.was.metadata.annotations) ? dyn(variables.was.metadata.annotations) : dyn({})`},
	{"wasFinalizers", `has(variables.was.metadata.finalizers) ? dyn(variables.was.metadata.finalizers) : dyn([])`},
	{"wasOwners", `has(variables.was.metadata.ownerReferences) ? dyn(variables.was.metadata.ownerReferences) : dyn([])`},
	{"nodeLabel", `'hostpath-provisioner/node' in variables.wasLabels ? string(variables.wasLabels['hostpath-provisioner/node']) : ''`},
	// A name of more than 63 characters is no label's value: plan.NodeLabelValue has its first 50
	// and a hash, which CEL has not.
	{"ownLabel", `variables.nodeLabel != '' && (variables.nodeLabel == variables.node || size(variables.node) > 63 && size(variables.nodeLabel) > 50 && variables.node.startsWith(variables.nodeLabel.substring(0, size(variables.nodeLabel) - 13)))`},
}

// isNodes is the first rule of each policy.
var isNodes = rule{`variables.node != ''`, "this identity is no node's: its token is not bound to a Node object"}

// unchanged are rules that keep metadata as it was. but are the annotations that may change.
func unchanged(but ...string) []rule {
	annotations := `variables.annotations == variables.wasAnnotations`
	if len(but) > 0 {
		list := "['" + strings.Join(but, "', '") + "']"
		annotations = fmt.Sprintf(`variables.annotations.all(k, k in %s || k in variables.wasAnnotations && variables.annotations[k] == variables.wasAnnotations[k]) && variables.wasAnnotations.all(k, k in %s || k in variables.annotations)`, list, list)
	}
	return []rule{
		{`variables.labels == variables.wasLabels`, "labels stay as they are"},
		{annotations, "annotations stay as they are"},
		{`variables.owners == variables.wasOwners`, "owner references stay as they are"},
	}
}

// unchangedButIndex is unchanged for what the API server itself labels with each change: that label
// may change.
func unchangedButIndex(label string, but ...string) []rule {
	return append([]rule{{sameBut("variables.labels", "variables.wasLabels", label), "labels stay as they are"}}, unchanged(but...)[1:]...)
}

// sameBut is a condition: the maps at two expressions differ in these keys at most.
func sameBut(now, was string, keys ...string) string {
	list := "['" + strings.Join(keys, "', '") + "']"
	return fmt.Sprintf(`dyn(%[1]s).all(k, k in %[3]s || k in dyn(%[2]s) && dyn(%[1]s)[k] == dyn(%[2]s)[k]) && dyn(%[2]s).all(k, k in %[3]s || k in dyn(%[1]s))`, now, was, list)
}

const selectedNode = "volume.kubernetes.io/selected-node"

// policies are what the identity of a node may write. What it may not at all is not in rights.
var policies = []policy{
	volumesPolicy, claimsPolicy, claimStatusPolicy, eventsPolicy, leasesPolicy, capacitiesPolicy, driversPolicy, contentsPolicy, contentStatusPolicy, tokensPolicy,
}

// object is the name of the policy's object, and of its binding.
func (p policy) object() string { return p.name + ".NAMESPACE.hostpath-provisioner" }

// policyNames are the names of all, for a rule of RBAC.
func policyNames() string {
	names := make([]string, 0, len(policies))
	for _, p := range policies {
		names = append(names, p.object())
	}
	return strings.Join(names, ", ")
}

// policyLines are the policies and their bindings; without a confinement there are none. What is
// removed is removed in this order: bindings, policies, and after all else the ConfigMap that
// policies of earlier versions read. While one of these is in force without it, the API server
// refuses everybody's writes.
func (o Options) policyLines() string {
	if !o.Confine.Any() && !o.Delete {
		return ""
	}
	var all, bindings strings.Builder
	for _, p := range policies {
		all.WriteString(p.yaml())
		bindings.WriteString(strings.ReplaceAll(bindingObject, "@NAME@", p.object()))
	}
	if o.Delete {
		return bindings.String() + all.String()
	}
	return all.String() + bindings.String()
}

// daemonCondition holds for requests of the daemons alone.
const daemonCondition = "request.userInfo.username == 'system:serviceaccount:NAMESPACE:hostpath-provisioner'"

func (p policy) allRules() []rule { return append([]rule{isNodes}, p.rules...) }

var ofVariable = regexp.MustCompile(`variables[.]([A-Za-z]+)`)

// allVariables are those that the rules use, and those that these use, each before its use.
func (p policy) allVariables() (used []variable) {
	wanted, all := map[string]bool{}, slices.Concat(lists, common, p.variables)
	want := func(expression string) {
		for _, found := range ofVariable.FindAllStringSubmatch(expression, -1) {
			wanted[found[1]] = true
		}
	}
	for _, r := range p.allRules() {
		want(r.condition)
	}
	for _, v := range slices.Backward(all) {
		if wanted[v.name] {
			want(v.is)
			used = append(used, v)
		}
	}
	slices.Reverse(used)
	return used
}

// oneLine is an expression without the lines and the indentation that it has here.
func oneLine(expression string) string { return strings.Join(strings.Fields(expression), " ") }

// yaml is the policy.
func (p policy) yaml() string {
	var match, variables, rules strings.Builder
	if p.own {
		match.WriteString("    namespaceSelector:\n      matchLabels: {" + namespaceName + ": NAMESPACE}\n")
	}
	fmt.Fprintf(&match, "    resourceRules:\n      - apiGroups: [%s]\n        apiVersions: [\"*\"]\n        resources: [%s]\n",
		cmp.Or(p.group, `""`), p.resource)
	if len(p.names) > 0 {
		fmt.Fprintf(&match, "        resourceNames: [%s]\n", strings.Join(p.names, ", "))
	}
	fmt.Fprintf(&match, "        operations: [%s]\n", strings.Join(p.operations, ", "))
	for _, v := range p.allVariables() {
		fmt.Fprintf(&variables, "    - name: %s\n      expression: >-\n        %s\n", v.name, oneLine(v.is))
	}
	for _, r := range p.allRules() {
		fmt.Fprintf(&rules, "    - expression: >-\n        %s\n      message: %q\n      reason: Forbidden\n", oneLine(r.condition), r.message)
	}
	return strings.NewReplacer("@NAME@", p.object(), "@MATCH@", match.String(), "@VARIABLES@", variables.String(),
		"@RULES@", rules.String()).Replace(policyObject)
}

// namespaceName is the label that the API server itself puts on each namespace.
const namespaceName = "kubernetes.io/metadata.name"

// policyObject fails closed: what cannot be evaluated is refused. That concerns the daemons alone,
// because whose the request is comes first, an expression that cannot fail; and what else comes
// before it is a namespace of a request that does not exist, in which no request can write.
const policyObject = `---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: @NAME@
` + partOf + `spec:
  failurePolicy: Fail
  matchConstraints:
@MATCH@  matchConditions:
    - name: daemon
      expression: ` + daemonCondition + `
  variables:
@VARIABLES@  validations:
@RULES@`

const bindingObject = `---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: @NAME@
` + partOf + `spec:
  policyName: @NAME@
  validationActions: [Deny]
`
