package clustercheck

import (
	"errors"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

// good are the facts of a node on which nothing is wrong, in a cluster with everything.
func good() Facts {
	f := Facts{
		Now: now,
		Configured: Configured{Node: "node-a", Namespace: "s", Provisioners: []string{"p", "q"}, Pools: []Pool{
			{"fast", "/srv/fast", "node"}, {"net", "/srv/net", "shared"}, {"all", "/srv/all", "every-node"},
		}},
		API:        API{Server: "https://server:6443", Version: "v1.36.0"},
		Credential: Credential{Issued: now.Add(-10 * day), Expires: now.Add(355 * day)},
		Identity:   Identity{User: "system:serviceaccount:s:hostpath-provisioner", Node: "node-a"},
		Node:       Node{Found: true, Hostname: "host-a"},
		Rights:     Rights{Reviewed: 60, Renewal: true},
		Policies:   Policies{Readable: true, Enforced: true},
		Parameters: Parameters{
			Readable: true, Hostnames: map[string]string{"node-a": "host-a"}, Classes: []string{"p", "p-fast", "disk"},
			Lists: map[string][]string{"provisioners": {"p", "q"}, "paths": {"/srv/fast"}, "sharedPaths": {"/srv/*"}, "everyNodePaths": {"/srv/all"}, "classes": {"disk"}},
		},
		Index:  Index{Policy: true, Binding: true, Same: true, Labels: true, Tried: true, Volumes: true},
		Failed: map[string]error{},
	}
	for _, name := range []string{"volumes", "claims"} {
		f.Policies.All = append(f.Policies.All, Policy{Name: name, Found: true, Bound: true, Same: true, SameBinding: true})
	}
	return f
}

// none takes the policies away, and with them the rights that they bring.
func none(f *Facts) {
	f.Policies = Policies{All: []Policy{{Name: "volumes"}, {Name: "claims"}}}
	f.Parameters, f.Rights.Renewal = Parameters{}, false
}

func refused(kind string) func(*Facts) {
	return func(f *Facts) { f.API.Err, f.API.Refusal = errors.New("no\nway"), kind }
}

const listsGood = "ok  they list the provisioners, their classes, the paths of all 3 pools and the hostname of this node"

// cases are one for each rule, and one for each of two rules of which both hold.
var cases = []struct {
	name   string
	change func(*Facts)
	check  string
	want   string // status, reason and message
}{
	{"a server that responds", func(*Facts) {}, CheckAPI, "ok  https://server:6443 responds, with Kubernetes v1.36.0"},
	{"a server that drops states", func(f *Facts) { f.API.Version = "v1.31.14" }, CheckAPI,
		"ok  https://server:6443 responds, with Kubernetes v1.31.14; it is before 1.32: " +
			"the request of a claim that cannot grow cannot be lowered again; it is before 1.34: " +
			"a VolumeAttributesClass that a claim names is dropped"},
	{"a server that drops classes", func(f *Facts) { f.API.Version = "v1.33.13" }, CheckAPI,
		"ok  https://server:6443 responds, with Kubernetes v1.33.13; it is before 1.34: " +
			"a VolumeAttributesClass that a claim names is dropped"},
	{"no kubeconfig", refused(RefusalKubeconfig), CheckAPI, `wrong KubeconfigUnusable no\nway`},
	{"another authority", refused("NotTrusted"), CheckAPI, `wrong ServerNotTrusted the certificate of https://server:6443 is not of the authority in the kubeconfig: no\nway`},
	{"a credential that is not known", refused("Unauthorized"), CheckAPI, "wrong CredentialRefused https://server:6443 does not accept the credential (no\\nway): it has ended, its Node object is gone, or it is another cluster's"},
	{"a certificate that has expired", refused("NotValidNow"), CheckAPI, `wrong ServerCertificateTime the certificate of https://server:6443 is not valid at this host's time: no\nway`},
	{"a certificate for another name", refused("OtherName"), CheckAPI, `wrong ServerNameDiffers the certificate of https://server:6443 is for other names: no\nway`},
	{"no TLS", refused("NoTLS"), CheckAPI, `wrong ServerWithoutTLS what responds at https://server:6443 does not speak TLS: no\nway`},
	{"TLS at an http address", refused("WantsTLS"), CheckAPI,
		`wrong ServerWantsTLS https://server:6443 wants TLS, and the address begins with http: no\nway`},
	{"a program that fails", refused("NoCredential"), CheckAPI, `wrong NoCredential the program that the kubeconfig names gave no credential for https://server:6443: no\nway`},
	{"a proxy that is away", refused("ProxyAway"), CheckAPI, `wrong ProxyUnreachable the proxy on the way to https://server:6443 does not respond: no\nway`},
	{"no server", refused("Unreachable"), CheckAPI, `wrong ServerUnreachable https://server:6443 does not respond: no\nway`},
	{"a server with an error", refused(""), CheckAPI, `wrong ServerFails https://server:6443 responds with an error: no\nway`},
	{"nothing is known without a server", refused("Unreachable"), CheckPolicies, "unknown  the API server has to respond first"},

	{"nothing is known without a kubeconfig", refused(RefusalKubeconfig), CheckToken, "unknown  it takes a kubeconfig to know"},

	{"a token that is renewed", func(*Facts) {}, CheckToken, "ok  it ends 2027-11-13T12:00:00Z, in 355 days; the daemon renews it"},
	{"a token that is not renewed", none, CheckToken, "ok  it ends 2027-11-13T12:00:00Z, in 355 days; nothing renews it"},
	{"a token without a server", refused("Unreachable"), CheckToken, "ok  it ends 2027-11-13T12:00:00Z, in 355 days"},
	{"exactly a quarter is left", func(f *Facts) {
		f.Credential = Credential{Issued: now.Add(-75 * time.Hour), Expires: now.Add(25 * time.Hour)}
	}, CheckToken, "ok  it ends 2026-11-24T13:00:00Z, in 25 hours; the daemon renews it"},
	{"less than a quarter is left", func(f *Facts) {
		f.Credential = Credential{Issued: now.Add(-76 * time.Hour), Expires: now.Add(25 * time.Hour)}
	}, CheckToken, "warning CredentialEnds it ends 2026-11-24T13:00:00Z, in 25 hours, and the daemon has not renewed it"},
	{"little is left, and it is not renewed", func(f *Facts) { none(f); f.Credential.Expires = now.Add(90 * time.Minute) }, CheckToken, "warning CredentialEnds it ends 2026-11-23T13:30:00Z, in 90 minutes, and nothing renews it"},
	{"little is left, and no server", func(f *Facts) { refused("Unreachable")(f); f.Credential.Expires = now.Add(49 * time.Hour) }, CheckToken, "warning CredentialEnds it ends 2026-11-25T13:00:00Z, in 2 days"},
	{"it has ended", func(f *Facts) { f.Credential.Expires = now.Add(-3 * day) }, CheckToken, "wrong CredentialExpired it ended 2026-11-20T12:00:00Z, 3 days ago"},
	{"it ends now", func(f *Facts) { f.Credential.Expires = now }, CheckToken, "wrong CredentialExpired it ended 2026-11-23T12:00:00Z, 0 minutes ago"},
	{"it never ends", func(f *Facts) { f.Credential, f.Identity.Node = Credential{}, "" }, CheckToken, "warning CredentialEndless it is a token that never ends, and is bound to no node"},
	{"a program's", func(f *Facts) { f.Credential, f.Identity = Credential{}, Identity{User: "node-a"} }, CheckToken, "ok  the credential does not say when it ends"},

	{"the node's own identity", func(*Facts) {}, CheckIdentity, "ok  system:serviceaccount:s:hostpath-provisioner, bound to the Node node-a"},
	{"one that the server ignores", func(f *Facts) { f.Identity = Identity{Ignored: true} }, CheckIdentity, "wrong CredentialIgnored the API server ignores the credential, and takes each request for one without"},
	{"another node's", func(f *Facts) { f.Identity.Node = "node-b" }, CheckIdentity, "wrong BoundToOtherNode its token is bound to the Node node-b, and this host is node node-a"},
	{"an administrator's", func(f *Facts) { f.Identity = Identity{User: "kubernetes-admin"} }, CheckIdentity, `warning OtherIdentity it is "kubernetes-admin", and the policies are for the ServiceAccount hostpath-provisioner of the namespace s: nothing confines it`},
	{"bound to nothing, with policies", func(f *Facts) { f.Identity.Node = "" }, CheckIdentity, "wrong NotBound its token is bound to no Node object, and the policies refuse it everything"},
	{"bound to nothing, without policies", func(f *Facts) { none(f); f.Identity.Node = "" }, CheckIdentity, "warning NotBound its token is bound to no Node object: it is good on any machine, and no policy can confine it"},
	{"another node's of another account", func(f *Facts) { f.Identity = Identity{User: "system:serviceaccount:x:y", Node: "node-b"} }, CheckIdentity, "wrong BoundToOtherNode its token is bound to the Node node-b, and this host is node node-a"},

	{"the Node", func(*Facts) {}, CheckNode, "ok  node-a, with the hostname label host-a"},
	{"no Node", func(f *Facts) { f.Node = Node{} }, CheckNode, "wrong NodeMissing the cluster has no Node node-a"},
	{"no hostname", func(f *Facts) { f.Node.Hostname = "" }, CheckNode, "wrong HostnameMissing the Node node-a has no label kubernetes.io/hostname, which a volume's affinity needs"},

	{"all rights", func(*Facts) {}, CheckRights, "ok  all 60 that the daemon needs"},
	{"a right is missing", func(f *Facts) {
		f.Rights.Lacks, f.Rights.Excess = []string{"list pods", "get nodes"}, []string{"get secrets"}
	}, CheckRights, "wrong RightsMissing it lacks 2 of 60: list pods, get nodes"},
	{"a right too many", func(f *Facts) { f.Rights.Excess = []string{"get secrets"} }, CheckRights, "warning TooManyRights it has rights that no daemon needs: get secrets"},
	{"no right to pods", func(f *Facts) { f.Rights.Pods = []string{"list pods", "watch pods"} }, CheckRights, "warning PodsUnread it lacks list pods, watch pods: the claims of a pod get their volumes each for itself, and pods that name their node get none"},

	{"all policies", func(*Facts) {}, CheckPolicies, "ok  all 2 are there, bound and of this version; the API server refused a volume that they forbid"},
	{"no policies", none, CheckPolicies, "warning NoPolicies none confines this node's token: a thief of it can change the volumes and claims of all nodes"},
	{"not to be read", func(f *Facts) { f.Policies.Readable = false }, CheckPolicies, "warning PoliciesUnreadable they are in force, and this identity may not read which: the cluster has the manifests of an earlier version"},
	{"not to be read, and none", func(f *Facts) { none(f); f.Policies.Readable = false }, CheckPolicies, "warning NoPolicies none confines this node's token: a thief of it can change the volumes and claims of all nodes"},
	{"of an earlier version", func(f *Facts) { f.Policies.All[1] = Policy{Name: "claims", Found: true, Parametrised: true} }, CheckPolicies, "wrong PoliciesReadConfigMap 1 of 2 are of an earlier version and read the ConfigMap hostpath-provisioner-confinement of the namespace s: while it or its namespace is missing, the API server refuses everybody's leases, tokens, claims, volumes and events"},
	{"one is missing", func(f *Facts) { f.Policies.All[1] = Policy{Name: "claims", Bound: true, SameBinding: true} }, CheckPolicies, "wrong PoliciesMissing 1 of 2 are missing: claims"},
	{"one is not bound", func(f *Facts) { f.Policies.All[1].Bound = false }, CheckPolicies, "wrong PoliciesUnbound 1 of 2 have no binding, or another one than that of this version, and may refuse nothing: claims"},
	{"one is bound otherwise", func(f *Facts) { f.Policies.All[0].SameBinding, f.Policies.All[1].Same = false, false }, CheckPolicies, "wrong PoliciesUnbound 1 of 2 have no binding, or another one than that of this version, and may refuse nothing: volumes"},
	{"all are there, and nothing is refused", func(f *Facts) { f.Policies.Enforced, f.Policies.All[0].Same = false, false }, CheckPolicies, "wrong PoliciesNotEnforced they are there and bound, and the API server accepted a volume that they forbid"},
	{"another identity is refused nothing", func(f *Facts) { f.Policies.Enforced, f.Identity = false, Identity{User: "x"} }, CheckPolicies, "ok  all 2 are there, bound and of this version"},
	{"one is of another version", func(f *Facts) { f.Policies.All[1].Same = false }, CheckPolicies, "warning PoliciesDiffer 1 of 2 are not those of this version: claims"},

	{"all is listed", func(*Facts) {}, CheckParameters, listsGood},
	{"no parameters without policies", none, CheckParameters, "ok  without policies of this version that this identity may read there are none to compare"},
	{"parameters that may not be read", func(f *Facts) { f.Parameters = Parameters{} }, CheckParameters, "ok  without policies of this version that this identity may read there are none to compare"},
	{"a class is missing", func(f *Facts) { f.Parameters.Classes = []string{"p-fast", "pf", "fast", "Q_x"} }, CheckParameters, "wrong ClassNotListed the policies do not list pf, fast, Q_x, which is not named after a provisioner: no volume is made for its claims"},
	{"classes that begin as one that is listed", func(f *Facts) { f.Parameters.Lists["classes"] = []string{"di*"} }, CheckParameters, listsGood},
	{"classes of an alias", func(f *Facts) {
		f.Parameters.Lists["provisioners"], f.Parameters.Classes = []string{"p", "q", "Example.com/X_y"}, []string{"example.com-x-y", "example.com-x-y-z"}
	}, CheckParameters, listsGood},
	{"any class of any provisioner", func(f *Facts) {
		f.Parameters.Lists["provisioners"], f.Parameters.Lists["classes"], f.Parameters.Classes = []string{"*"}, nil, []string{"x"}
	}, CheckParameters, listsGood},
	{"an alias is missing", func(f *Facts) { f.Parameters.Lists["provisioners"] = []string{"p"} }, CheckParameters, "wrong ProvisionerNotListed the policies do not list q: no volume is made for its classes"},
	{"any provisioner", func(f *Facts) { f.Parameters.Lists["provisioners"], f.Parameters.Lists["classes"] = []string{"*"}, nil }, CheckParameters, listsGood},
	{"paths are missing", func(f *Facts) {
		f.Parameters.Lists["paths"], f.Parameters.Lists["sharedPaths"] = []string{"/srv/fas", "/"}, nil
	}, CheckParameters, "wrong PoolNotListed the policies do not list /srv/fast of pool fast for --pool-path, /srv/net of pool net for --shared-pool-path: no volume is made there"},
	{"a hostname is missing", func(f *Facts) { delete(f.Parameters.Hostnames, "node-a") }, CheckParameters, `wrong HostnameNotListed the policies have "node-a" as the hostname of this node, and the Node's label is "host-a": no volume is made`},
	{"the hostname is the node's name", func(f *Facts) { delete(f.Parameters.Hostnames, "node-a"); f.Node.Hostname = "node-a" }, CheckParameters, listsGood},
	{"pools of several nodes need no hostname", func(f *Facts) {
		delete(f.Parameters.Hostnames, "node-a")
		f.Configured.Pools = f.Configured.Pools[1:]
	}, CheckParameters, "ok  they list the provisioners, their classes, the paths of all 2 pools and the hostname of this node"},

	{"its own audience", func(f *Facts) {
		f.Credential.Audiences = []string{"x"}
		f.Parameters.Lists["audiences"] = []string{"x", "y"}
	}, CheckParameters, listsGood},
	{"another audience", func(f *Facts) {
		f.Credential.Audiences = []string{"x"}
		f.Parameters.Lists["audiences"] = []string{"y"}
	}, CheckParameters, "wrong AudienceNotListed the policies do not list x as an audience: the token is not renewed"},
	{"any audience", func(f *Facts) { f.Credential.Audiences = []string{"x"} }, CheckParameters, "ok  they list the provisioners, their classes, the paths of all 3 pools and the hostname of this node; without audiences (--audience x) the identity gets tokens for any"},

	{"an index", func(*Facts) {}, CheckClaimIndex, "ok  there, bound and of this version; the API server labels claims"},
	{"an index without a claim", func(f *Facts) { f.Index.Tried, f.Index.Labels = false, false }, CheckClaimIndex, "ok  there, bound and of this version; the cluster has no claim to try it with"},
	{"an older server", func(f *Facts) { f.API.Version, f.Index = "v1.34.4", Index{Unserved: true} },
		CheckClaimIndex, "ok  the API server has no MutatingAdmissionPolicy: it is v1.34.4, " +
			"not 1.36 or later; the daemon reads all claims"},
	{"no index", func(f *Facts) { f.Index = Index{} }, CheckClaimIndex, "ok  the cluster has none: the daemon reads all claims"},
	{"no binding", func(f *Facts) { f.Index = Index{Policy: true} }, CheckClaimIndex, "warning IndexUnbound the policy hostpath-provisioner-claims or its binding is missing: the daemon reads all claims"},
	{"no policy", func(f *Facts) { f.Index = Index{Binding: true} }, CheckClaimIndex, "warning IndexUnbound the policy hostpath-provisioner-claims or its binding is missing: the daemon reads all claims"},
	{"an index of volumes alone", func(f *Facts) { f.Index = Index{Volumes: true} }, CheckClaimIndex, "warning IndexUnbound the policy hostpath-provisioner-claims or its binding is missing: the daemon reads all claims"},
	{"another index", func(f *Facts) { f.Index.Same, f.Index.Labels = false, false }, CheckClaimIndex, "warning IndexDiffers the policy hostpath-provisioner-claims or its binding is not that of this version: the daemon reads all claims"},
	{"an index of claims alone", func(f *Facts) { f.Index.Volumes = false }, CheckClaimIndex, "warning VolumesUnlabelled the policy hostpath-provisioner-volumes or its binding is missing, or is not that of this version: pre-bound volumes are looked for among all volumes"},
	{"an index that is not in force", func(f *Facts) { f.Index.Labels = false }, CheckClaimIndex, "warning IndexNotEnforced the policy hostpath-provisioner-claims is there, and the API server labels no claim: the daemon reads all claims"},

	{"a request that failed", func(f *Facts) { f.Failed[CheckRights] = errors.New("no"); f.Rights.Lacks = []string{"get nodes"} }, CheckRights, "unknown  no"},
}

func TestJudge(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := good()
			c.change(&f)
			for _, line := range Judge(f) {
				seen[line.Reason] = true
				if got := strings.Join([]string{line.Status, line.Reason, line.Message}, " "); line.Check == c.check && got != c.want {
					t.Errorf("%s\nwant\n%s", got, c.want)
				}
			}
		})
	}
	rules := 0
	for _, c := range checks {
		rules += len(c.rules)
	}
	// indexUnknown, indexAbsent and parametersNotRead have no reason, and "" is one here.
	if len(seen) != rules-2 {
		t.Errorf("%d reasons of %d rules", len(seen), rules)
	}
}

// Warnings leave an exit code of zero; what is wrong or not known does not.
func TestSound(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Facts)
		want   bool
	}{
		"good":      {func(*Facts) {}, true},
		"a warning": {none, true},
		"wrong":     {func(f *Facts) { f.Node = Node{} }, false},
		"unknown":   {func(f *Facts) { f.Failed[CheckNode] = errors.New("no") }, false},
	} {
		f := good()
		c.change(&f)
		if got := Sound(Judge(f)); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if lines := Judge(good()); len(lines) != len(checks) {
		t.Errorf("%d lines", len(lines))
	}
}
