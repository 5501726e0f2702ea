package packaging

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
)

// reach is where a right holds, and with that the role that gives it.
type reach int

const (
	everywhere   reach = iota // the cluster's objects and those of all namespaces: ClusterRole hostpath-provisioner:NAMESPACE
	ofDriver                  // the CSIDriver of the provisioner's name: ClusterRole hostpath-provisioner:NAMESPACE:PROVISIONER
	inPlaceOf                 // kubevirt's CSIDriver, in whose place it is
	ownNamespace              // the namespace of the ServiceAccount: Role hostpath-provisioner
)

// right is one rule of RBAC: what the daemon's identity may do, and for what it needs that.
type right struct {
	reach    reach
	group    string // of the API, "" is the core
	resource string
	name     string // of the one object, or of several with commas between them; "" for all
	verbs    []string
	why      string
	// confined: it is given together with the policies only, without which it would be a right to
	// every node's identity.
	confined bool
}

// rights is everything that the daemon and the commands of its node may do in a cluster. What a
// policy allows of it is in policies.go.
var rights = []right{
	{everywhere, "", "persistentvolumeclaims", "", []string{"get", "list", "watch", "patch"}, "patch: the node's name on a claim", false},
	{everywhere, "", "persistentvolumeclaims/status", "", []string{"patch"}, "how far the expansion of a claim is", false},
	{everywhere, "", "persistentvolumes", "", []string{"get", "list", "watch", "create", "patch", "delete"}, "patch: the finalizer off, the size after an expansion", false},
	{everywhere, "", "pods", "", []string{"list", "watch"},
		"which claims are of one pod; pods that name this node themselves; adopt: does the other " +
			"program run? (manifests --no-pods)", false},
	{everywhere, "", "nodes", "", []string{"get", "list", "watch"}, "its own; get: does the one that was chosen exist; list: those that publish no capacity", false},
	{everywhere, "", "namespaces", "kube-system", []string{"get"}, "its UID tells this cluster from others", false},
	{everywhere, "", "events", "", []string{"create", "get", "patch"}, "patch: the count of one that is repeated", false},
	{everywhere, "storage.k8s.io", "storageclasses", "", []string{"get", "list", "watch"}, "get: whose a class is that no watch has brought yet", false},
	{everywhere, "admissionregistration.k8s.io", "mutatingadmissionpolicies", claimindex.Name, []string{"get", "list", "watch"}, "whether the API server labels claims (--claim-index)", false},
	{everywhere, "admissionregistration.k8s.io", "mutatingadmissionpolicybindings", claimindex.Name, []string{"list", "watch"}, "the same", false},
	{everywhere, "admissionregistration.k8s.io", "mutatingadmissionpolicies", claimindex.VolumesName, []string{"get"}, "whether the API server labels volumes that are kept for claims (--claim-index)", false},
	{everywhere, "admissionregistration.k8s.io", "mutatingadmissionpolicybindings", claimindex.VolumesName, []string{"get"}, "the same", false},
	{everywhere, "storage.k8s.io", "csinodes", "", []string{"get"}, "adopt --from-csi: does the driver run?", false},
	{everywhere, "snapshot.storage.k8s.io", "volumesnapshotcontents", "", []string{"get", "list", "watch", "patch"}, "patch: whose it is, the finalizer off", false},
	{everywhere, "snapshot.storage.k8s.io", "volumesnapshotcontents/status", "", []string{"patch"}, "that a snapshot is ready, or why there is none", false},
	{everywhere, "snapshot.storage.k8s.io", "volumesnapshots", "", []string{"get"}, "the one that a claim is made from", false},
	{everywhere, "snapshot.storage.k8s.io", "volumesnapshotclasses", "", []string{"get"}, "the class of a content", false},
	{ofDriver, "storage.k8s.io", "csidrivers", "PROVISIONER", []string{"get", "patch"}, "the scheduler compares capacities once they are published", false},
	{inPlaceOf, "storage.k8s.io", "csidrivers", KubevirtCSI, []string{"get", "patch"},
		"the same for the driver in whose place it is (csi_drivers)", false},
	{ownNamespace, "coordination.k8s.io", "leases", "", []string{"get", "list", "watch", "create", "update", "delete"}, "which node works in a shared pool, and which host as a node; delete: tombstones of volumes of scope every-node", false},
	{ownNamespace, "storage.k8s.io", "csistoragecapacities", "", []string{"list", "create", "patch", "delete"}, "what the classes can still get on each node, for the scheduler", false},
	{ownNamespace, "", "serviceaccounts/token", "hostpath-provisioner", []string{"create"}, "its own next token, before this one ends", true},
	{everywhere, "admissionregistration.k8s.io", "validatingadmissionpolicies", policyNames(), []string{"get"}, "check --cluster: what confines this identity, and what it lets it have", true},
	{everywhere, "admissionregistration.k8s.io", "validatingadmissionpolicybindings", policyNames(), []string{"get"}, "the same", true},
}

// role is a Role or ClusterRole with its binding, in YAML.
type role struct {
	reach reach
	name  string
}

// KubevirtCSI is the alias that is a CSI driver in whose place the daemon can be (csi_drivers).
const KubevirtCSI = "kubevirt.io.hostpath-provisioner"

// roles are the roles, in the order in which they are printed. A provisioner whose name no
// CSIDriver can have needs no right to one.
func (o Options) roles() []role {
	all := []role{{everywhere, "hostpath-provisioner:NAMESPACE"}}
	if possibleDriver(o.Provisioner) {
		all = append(all, role{ofDriver, "hostpath-provisioner:NAMESPACE:PROVISIONER"})
	}
	if slices.Contains(o.Confine.Aliases, KubevirtCSI) && o.Provisioner != KubevirtCSI {
		all = append(all, role{inPlaceOf, "hostpath-provisioner:NAMESPACE:" + KubevirtCSI})
	}
	return append(all, role{ownNamespace, "hostpath-provisioner"})
}

// yaml is the role and its binding.
func (r role) yaml(o Options) string {
	kind, namespace := "ClusterRole", ""
	if r.reach == ownNamespace {
		kind, namespace = "Role", "\n  namespace: NAMESPACE"
	}
	var rules strings.Builder
	for _, one := range rights {
		if one.reach == r.reach && o.gives(one) {
			rules.WriteString(one.yaml())
		}
	}
	return strings.NewReplacer("@KIND@", kind, "@NAME@", r.name, "@IN@", namespace, "@RULES@", rules.String()).Replace(roleObjects)
}

// gives reports whether the manifests give a right.
func (o Options) gives(r right) bool {
	return (!r.confined || o.Confine.Any()) && !(o.NoPods && r.resource == "pods")
}

const roleObjects = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: @KIND@
metadata:
  name: @NAME@@IN@
` + partOf + `rules:
@RULES@---
apiVersion: rbac.authorization.k8s.io/v1
kind: @KIND@Binding
metadata:
  name: @NAME@@IN@
` + partOf + `roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: @KIND@
  name: @NAME@
subjects:
  - kind: ServiceAccount
    name: hostpath-provisioner
    namespace: NAMESPACE`

// yaml is the rule as an item of a role's rules.
func (r right) yaml() string {
	group := r.group
	if group == "" {
		group = `""`
	}
	names := ""
	if r.name != "" {
		names = "    resourceNames: [" + r.name + "]\n"
	}
	return fmt.Sprintf("  - apiGroups: [%s]\n    resources: [%s]\n%s    # %s\n    verbs: [%s]\n", group, r.resource, names, r.why, strings.Join(r.verbs, ", "))
}

// Right is one verb of RBAC that the daemon's ServiceAccount has, for tests and for reviews of
// one's own rights.
type Right struct {
	Group, Resource, Subresource, Name, Verb string
	Namespace                                string // "" for the cluster's objects and those of all namespaces
	Why                                      string // what needs it
	Confined                                 bool   // it comes with the policies only
}

// Rights lists what the manifests with these options give.
func Rights(o Options) (all []Right) {
	for _, role := range o.roles() {
		for _, r := range rights {
			if r.reach != role.reach || !o.gives(r) {
				continue
			}
			one := Right{Group: r.group, Why: r.why, Confined: r.confined}
			if r.reach == ownNamespace {
				one.Namespace = o.Namespace
			}
			one.Resource, one.Subresource, _ = strings.Cut(r.resource, "/")
			for _, one.Name = range strings.Split(o.fill(r.name), ", ") {
				for _, one.Verb = range r.verbs {
					all = append(all, one)
				}
			}
		}
	}
	return all
}
