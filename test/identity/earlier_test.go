package identity

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// earlierForm is a policy of an earlier version, of the name that has another form now, and what it
// reads.
const earlierForm = `---
apiVersion: v1
kind: Namespace
metadata: {name: hostpath-provisioner}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: hostpath-provisioner-confinement, namespace: hostpath-provisioner}
data: {paths: /srv/fast}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: RESOURCE.hostpath-provisioner.hostpath-provisioner}
spec:
  failurePolicy: Fail
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
      - {apiGroups: ["", coordination.k8s.io], apiVersions: ["*"], resources: [RESOURCE], operations: [CREATE, UPDATE, DELETE]}
  matchConditions:
    - {name: daemon, expression: "request.userInfo.username == 'system:serviceaccount:hostpath-provisioner:hostpath-provisioner'"}
  validations:
    - {expression: has(params.data)}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: RESOURCE.hostpath-provisioner.hostpath-provisioner}
spec:
  policyName: RESOURCE.hostpath-provisioner.hostpath-provisioner
  validationActions: [Deny]
  paramRef: {name: hostpath-provisioner-confinement, namespace: hostpath-provisioner, parameterNotFoundAction: Deny}
`

// TestEarlierForm: an earlier version's policies, which refuse everybody where their ConfigMap is
// missing, are replaced in their places,
// before and after that has happened, and removed in an order in which it does not.
func TestEarlierForm(t *testing.T) {
	o := newOrders(t)
	configMaps := o.admin.CoreV1().ConfigMaps(account)
	o.earlier()
	o.installed("an upgrade", o.documents(lists...))
	o.Must(configMaps.Delete(o.Ctx, "hostpath-provisioner-confinement", metav1.DeleteOptions{}))
	o.settle()
	o.strangers("the deletion of the ConfigMap")
	o.thief("the deletion of the ConfigMap")

	o.Must(o.Restart(o.Ctx)) // the API server's informer of ConfigMaps has ended with the policies, and does not begin again
	o.earlier()
	o.Must(configMaps.Delete(o.Ctx, "hostpath-provisioner-confinement", metav1.DeleteOptions{}))
	lease := leaseIn("kube-system")
	o.Eventually("a request is refused, or the test cannot fail", func() bool { return lease(o) != nil })
	for _, d := range o.documents(lists...) {
		o.Must(o.Apply(o.Ctx, []byte(d)))
	}
	o.settle()
	o.strangers("an upgrade without the ConfigMap")
	o.thief("an upgrade without the ConfigMap")

	o.Must(o.Restart(o.Ctx))
	o.earlier()
	gone := o.documents("--delete")
	last := slices.IndexFunc(gone, func(d string) bool {
		return strings.Contains(d, "kind: ConfigMap")
	})
	for _, d := range gone[:last] {
		o.Must(o.Delete(o.Ctx, []byte(d)))
		o.strangers("a part of --delete of an earlier version")
	}
	o.settle()
	o.removed("--delete of an earlier version", gone[last:])
}

// earlier installs the policies of an earlier version.
func (o *orders) earlier() {
	o.Helper()
	both := strings.ReplaceAll(earlierForm, "RESOURCE", "leases") + strings.ReplaceAll(earlierForm,
		"RESOURCE", "events")
	o.Must(o.Apply(o.Ctx, []byte(both)))
	o.settle()
	o.strangers("an installation of an earlier version")
}
