package packaging

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Confinement is what the policies let the daemons of a cluster have. Its zero value confines nothing: then the manifests
// have no policies.
type Confinement struct {
	Paths          []string          // of pools of scope node, or directories that hold them
	SharedPaths    []string          // the same for scope shared
	EveryNodePaths []string          // the same for scope every-node
	Aliases        []string          // provisioner names beside Options.Provisioner, "*" for any
	Audiences      []string          // for which a token may be renewed: those of the API server; none is any
	Hostnames      map[string]string // the hostname label of each node that has another one than its name
}

// Any reports whether anything is confined.
func (c Confinement) Any() bool { return len(c.Paths)+len(c.SharedPaths)+len(c.EveryNodePaths) > 0 }

// policy is a ValidatingAdmissionPolicy for what the daemon's identity writes in one resource.
type policy struct {
	name       string // of the object, before .NAMESPACE.hostpath-provisioner
	group      string // of the API, "" is the core
	resource   string
	operations []string
	variables  []variable // beside the common ones
	rules      []rule
}

type variable struct{ name, is string }

// rule is a condition in CEL, and what the API server responds where it does not hold.
type rule struct{ condition, message string }

// common variables: whose identity it is, and what the parameter object lists.
var common = []variable{
	{"node", `has(request.userInfo.extra) && 'authentication.kubernetes.io/node-name' in request.userInfo.extra ? request.userInfo.extra['authentication.kubernetes.io/node-name'][0] : ''`},
	{"data", `has(params.data) ? dyn(params.data) : dyn({})`},
	{"provisioners", `('provisioners' in variables.data ? string(variables.data['provisioners']) : '').split('\n').map(p, p.trim())`},
	{"paths", `('paths' in variables.data ? string(variables.data['paths']) : '').split('\n').map(p, p.trim()).filter(p, p.startsWith('/') && p != '/')`},
	{"sharedPaths", `('shared-paths' in variables.data ? string(variables.data['shared-paths']) : '').split('\n').map(p, p.trim()).filter(p, p.startsWith('/') && p != '/')`},
	{"everyNodePaths", `('every-node-paths' in variables.data ? string(variables.data['every-node-paths']) : '').split('\n').map(p, p.trim()).filter(p, p.startsWith('/') && p != '/')`},
	{"hostname", `'hostname.' + variables.node in variables.data ? string(variables.data['hostname.' + variables.node]) : variables.node`},
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
	// A name of more than 63 characters is no label's value: plan.NodeLabelValue has its first 50 and a hash, which CEL has not.
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

// unchangedButIndex is unchanged for what the API server itself labels with each change: that label may change.
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

// ParametersName is the name of the ConfigMap that the policies read.
const ParametersName = "hostpath-provisioner-confinement"

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

// params is the ConfigMap that the policies read.
func (o Options) params() string {
	c := o.Confine
	var b strings.Builder
	b.WriteString("---\n# What the policies below let the daemons have; each list has one entry a line, and a change counts at once. A node whose label\n# kubernetes.io/hostname differs from its name has a key of its own, hostname.NODE, with the label's value.\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: hostpath-provisioner-confinement\n  namespace: NAMESPACE\ndata:\n")
	list := func(key string, all []string) {
		if len(all) > 0 {
			fmt.Fprintf(&b, "  %s: |\n    %s\n", key, strings.Join(all, "\n    "))
		}
	}
	// Provisioners of one namespace share the identity, and with each other's names as aliases this object.
	list("provisioners", slices.Compact(slices.Sorted(slices.Values(append([]string{o.Provisioner}, c.Aliases...)))))
	list("paths", c.Paths)
	list("shared-paths", c.SharedPaths)
	list("every-node-paths", c.EveryNodePaths)
	list("audiences", c.Audiences)
	for _, node := range slices.Sorted(maps.Keys(c.Hostnames)) {
		fmt.Fprintf(&b, "  %q: %q\n", "hostname."+node, c.Hostnames[node])
	}
	return b.String()
}

// policyLines are the parameter object, the policies and their bindings; without a confinement there are none, unless they are to
// be removed.
func (o Options) policyLines() string {
	if !o.Confine.Any() && !o.Delete {
		return ""
	}
	var b strings.Builder
	for _, p := range policies {
		b.WriteString(p.yaml())
	}
	return o.params() + b.String()
}

// daemonCondition holds for requests of the daemons alone.
const daemonCondition = "request.userInfo.username == 'system:serviceaccount:NAMESPACE:hostpath-provisioner'"

func (p policy) allVariables() []variable { return slices.Concat(common, p.variables) }

func (p policy) allRules() []rule { return append([]rule{isNodes}, p.rules...) }

// yaml is the policy and its binding.
func (p policy) yaml() string {
	var variables, rules strings.Builder
	for _, v := range p.allVariables() {
		fmt.Fprintf(&variables, "    - name: %s\n      expression: >-\n        %s\n", v.name, v.is)
	}
	for _, r := range p.allRules() {
		fmt.Fprintf(&rules, "    - expression: >-\n        %s\n      message: %q\n      reason: Forbidden\n", r.condition, r.message)
	}
	group := p.group
	if group == "" {
		group = `""`
	}
	return strings.NewReplacer("@NAME@", p.object(), "@GROUP@", group, "@RESOURCE@", p.resource,
		"@OPERATIONS@", strings.Join(p.operations, ", "), "@VARIABLES@", variables.String(), "@RULES@", rules.String()).Replace(policyObjects)
}

const policyObjects = `---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: @NAME@
spec:
  failurePolicy: Fail
  paramKind:
    apiVersion: v1
    kind: ConfigMap
  matchConstraints:
    resourceRules:
      - apiGroups: [@GROUP@]
        apiVersions: ["*"]
        resources: [@RESOURCE@]
        operations: [@OPERATIONS@]
  matchConditions:
    - name: daemon
      expression: ` + daemonCondition + `
  variables:
@VARIABLES@  validations:
@RULES@---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: @NAME@
spec:
  policyName: @NAME@
  validationActions: [Deny]
  paramRef:
    name: hostpath-provisioner-confinement
    namespace: NAMESPACE
    parameterNotFoundAction: Deny
`
