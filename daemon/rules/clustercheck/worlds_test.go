package clustercheck

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// worlds are what an administrator meets, with all lines of the report: a line too many or one less
// is seen.
var worlds = []struct {
	name   string
	change func(*Facts)
	want   string
}{
	{"everything is right", func(*Facts) {}, `
API: ok : https://server:6443 responds, with Kubernetes v1.36.0
token: ok : it ends 2027-11-13T12:00:00Z, in 355 days; the daemon renews it
identity: ok : system:serviceaccount:s:hostpath-provisioner, bound to the Node node-a
node: ok : node-a, with the hostname label host-a
rights: ok : all 60 that the daemon needs
policies: ok : all 2 are there, bound and of this version; the API server refused a volume that they forbid
parameters: ok : they list the provisioners, their classes, the paths of all 3 pools and the hostname of this node
claim index: ok : there, bound and of this version; the API server labels claims
`},
	{"a cluster without policies", func(f *Facts) { none(f); f.Index = Index{} }, `
API: ok : https://server:6443 responds, with Kubernetes v1.36.0
token: ok : it ends 2027-11-13T12:00:00Z, in 355 days; nothing renews it
identity: ok : system:serviceaccount:s:hostpath-provisioner, bound to the Node node-a
node: ok : node-a, with the hostname label host-a
rights: ok : all 60 that the daemon needs
policies: warning NoPolicies: none confines this node's token: a thief of it can change the volumes and claims of all nodes
parameters: ok : without policies of this version that this identity may read there are none to compare
claim index: ok : the cluster has none: the daemon reads all claims
`},
	{"a token of an enrolment before there were policies", func(f *Facts) {
		f.Credential, f.Identity.Node = Credential{}, ""
	}, `
API: ok : https://server:6443 responds, with Kubernetes v1.36.0
token: warning CredentialEndless: it is a token that never ends, and is bound to no node
identity: wrong NotBound: its token is bound to no Node object, and the policies refuse it everything
node: ok : node-a, with the hostname label host-a
rights: ok : all 60 that the daemon needs
policies: ok : all 2 are there, bound and of this version; the API server refused a volume that they forbid
parameters: ok : they list the provisioners, their classes, the paths of all 3 pools and the hostname of this node
claim index: ok : there, bound and of this version; the API server labels claims
`},
	{"an administrator's kubeconfig", func(f *Facts) {
		f.Identity, f.Credential, f.Policies.Enforced = Identity{User: "kubernetes-admin"}, Credential{}, false
		f.Rights.Excess = []string{"get secrets", "create pods"}
	}, `
API: ok : https://server:6443 responds, with Kubernetes v1.36.0
token: ok : the credential does not say when it ends
identity: warning OtherIdentity: it is "kubernetes-admin", and the policies are for the ServiceAccount hostpath-provisioner of the namespace s: nothing confines it
node: ok : node-a, with the hostname label host-a
rights: warning TooManyRights: it has rights that no daemon needs: get secrets, create pods
policies: ok : all 2 are there, bound and of this version
parameters: ok : they list the provisioners, their classes, the paths of all 3 pools and the hostname of this node
claim index: ok : there, bound and of this version; the API server labels claims
`},
	{"a disk that was cloned to another host", func(f *Facts) {
		f.Configured.Node, f.Node = "node-b", Node{Found: true, Hostname: "node-b"}
	}, `
API: ok : https://server:6443 responds, with Kubernetes v1.36.0
token: ok : it ends 2027-11-13T12:00:00Z, in 355 days; the daemon renews it
identity: wrong BoundToOtherNode: its token is bound to the Node node-a, and this host is node node-b
node: ok : node-b, with the hostname label node-b
rights: ok : all 60 that the daemon needs
policies: ok : all 2 are there, bound and of this version; the API server refused a volume that they forbid
parameters: ok : they list the provisioners, their classes, the paths of all 3 pools and the hostname of this node
claim index: ok : there, bound and of this version; the API server labels claims
`},
	{"a host that was off for longer than its token lasts", func(f *Facts) {
		*f = Facts{Now: now, Configured: f.Configured, API: API{Server: f.API.Server}, Credential: f.Credential}
		refused("Unauthorized")(f)
		f.Credential.Expires = now.Add(-2 * day)
	}, `
API: wrong CredentialRefused: https://server:6443 does not accept the credential (no\nway): it has ended, its Node object is gone, or it is another cluster's
token: wrong CredentialExpired: it ended 2026-11-21T12:00:00Z, 2 days ago
identity: unknown : the API server has to respond first
node: unknown : the API server has to respond first
rights: unknown : the API server has to respond first
policies: unknown : the API server has to respond first
parameters: unknown : the API server has to respond first
claim index: unknown : the API server has to respond first
`},
	{"a server that is down", func(f *Facts) {
		*f = Facts{Now: now, Configured: f.Configured, API: API{Server: f.API.Server}, Credential: f.Credential}
		refused("Unreachable")(f)
	}, `
API: wrong ServerUnreachable: https://server:6443 does not respond: no\nway
token: ok : it ends 2027-11-13T12:00:00Z, in 355 days
identity: unknown : the API server has to respond first
node: unknown : the API server has to respond first
rights: unknown : the API server has to respond first
policies: unknown : the API server has to respond first
parameters: unknown : the API server has to respond first
claim index: unknown : the API server has to respond first
`},
	{"a host that is not enrolled", func(f *Facts) {
		*f = Facts{Now: now, Configured: f.Configured}
		refused(RefusalKubeconfig)(f)
	}, `
API: wrong KubeconfigUnusable: no\nway
token: unknown : it takes a kubeconfig to know
identity: unknown : it takes a kubeconfig to know
node: unknown : it takes a kubeconfig to know
rights: unknown : it takes a kubeconfig to know
policies: unknown : it takes a kubeconfig to know
parameters: unknown : it takes a kubeconfig to know
claim index: unknown : it takes a kubeconfig to know
`},
	{"a server that fails halfway", func(f *Facts) {
		for _, check := range []string{CheckPolicies, CheckParameters, CheckClaimIndex, CheckRights} {
			f.Failed[check] = errors.New("etcdserver: request timed out")
		}
		f.Policies, f.Parameters, f.Index, f.Rights = Policies{Readable: true}, Parameters{}, Index{}, Rights{}
	}, `
API: ok : https://server:6443 responds, with Kubernetes v1.36.0
token: ok : it ends 2027-11-13T12:00:00Z, in 355 days
identity: ok : system:serviceaccount:s:hostpath-provisioner, bound to the Node node-a
node: ok : node-a, with the hostname label host-a
rights: unknown : etcdserver: request timed out
policies: unknown : etcdserver: request timed out
parameters: unknown : etcdserver: request timed out
claim index: unknown : etcdserver: request timed out
`},
	{"manifests of an earlier version", func(f *Facts) {
		f.Policies.Readable, f.Policies.All, f.Parameters = false, []Policy{{Name: "volumes"}, {Name: "claims"}}, Parameters{}
		f.Rights.Lacks, f.Index.Same = []string{"get validatingadmissionpolicies"}, false
	}, `
API: ok : https://server:6443 responds, with Kubernetes v1.36.0
token: ok : it ends 2027-11-13T12:00:00Z, in 355 days; the daemon renews it
identity: ok : system:serviceaccount:s:hostpath-provisioner, bound to the Node node-a
node: ok : node-a, with the hostname label host-a
rights: wrong RightsMissing: it lacks 1 of 60: get validatingadmissionpolicies
policies: warning PoliciesUnreadable: they are in force, and this identity may not read which: the cluster has the manifests of an earlier version
parameters: ok : without policies of this version that this identity may read there are none to compare
claim index: warning IndexDiffers: the policy hostpath-provisioner-claims or its binding is not that of this version: the daemon reads all claims
`},
}

func TestReports(t *testing.T) {
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			f := good()
			w.change(&f)
			var got strings.Builder
			for _, l := range Judge(f) {
				fmt.Fprintf(&got, "%s: %s %s: %s\n", l.Check, l.Status, l.Reason, l.Message)
			}
			if got.String() != w.want[1:] {
				t.Errorf("got\n%swant%s", &got, w.want)
			}
		})
	}
}
