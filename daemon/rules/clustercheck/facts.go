// Package clustercheck judges what a node finds of its cluster: the API server, the daemon's
// identity and its rights, and what confines them. Each check is an ordered list of rules, of which
// the first that holds is reported.
//
// It sends no request and reads no file. The advice for a reason is in cmd/hostpath-provisioner.
package clustercheck

import "time"

// Facts is what was found. What needs the API server is zero without it.
type Facts struct {
	Now        time.Time
	Configured Configured
	API        API
	Credential Credential
	Identity   Identity
	Node       Node
	Rights     Rights
	Policies   Policies
	Parameters Parameters
	Index      Index
	// Failed has the error of each check for which a request failed.
	Failed map[string]error
}

// Configured is what this host's configuration says.
type Configured struct {
	Node, Namespace string
	Provisioners    []string // its own first, then the aliases
	InPlaceOf       []string // those of them that are CSI drivers in whose place it is
	Pools           []Pool
}

// Pool is a pool of the configuration. Scope is "node", "shared" or "every-node".
type Pool struct{ Name, Path, Scope string }

// API is what the API server's first response was.
type API struct {
	Server  string // the address in the kubeconfig
	Version string // of the server, v1.36.0 for example
	Err     error
	// Refusal is the kind of the error: RefusalKubeconfig, or what kube.Refusal returns.
	Refusal string
}

// RefusalKubeconfig is the Refusal of a kubeconfig that cannot be used.
const RefusalKubeconfig = "Kubeconfig"

// Credential is what the credential says of itself. A zero Expires is one that does not say when it
// ends.
type Credential struct {
	Audiences       []string // of a token
	Issued, Expires time.Time
}

// Identity is the credential's user as the API server sees it.
type Identity struct {
	User string
	Node string // that the token is bound to
	// Ignored reports whether the server took the request for one without a credential.
	Ignored bool
}

// Node is the Node object of the configured name.
type Node struct {
	Found    bool
	Hostname string // its label
}

// Rights are the results of self-reviews.
type Rights struct {
	Reviewed int
	Lacks    []string // that the daemon needs
	Pods     []string // to read pods, that it lacks: the manifests may leave them out (--no-pods)
	Excess   []string // that no daemon needs
	Renewal  bool     // the identity may request its next token
}

// Policies are the ValidatingAdmissionPolicies for the daemon's identity.
type Policies struct {
	Readable bool // the identity may read them
	Enforced bool // the API server refused what they forbid
	All      []Policy
}

// Policy is one of them. Same and SameBinding compare it with this version's.
type Policy struct {
	Name                            string
	Found, Bound, Same, SameBinding bool
	// Parametrised: it is of an earlier version, which reads a ConfigMap, or its binding names one.
	Parametrised bool
}

// Parameters are the lists in the policies of this form.
type Parameters struct {
	Readable  bool
	Lists     map[string][]string // provisioners, paths, sharedPaths, everyNodePaths, classes, audiences
	Hostnames map[string]string   // of nodes whose label is not their name
	Classes   []string            // the StorageClasses of the configured provisioners, not a list of the policies
}

// Index is what the cluster has of the claim index.
type Index struct {
	Unserved        bool // the API server does not have their kinds: it is before Kubernetes 1.36
	Policy, Binding bool // there are objects of the names
	Same            bool // both are those of this version
	// Labels reports whether the API server labels claims. It was not tried without both objects,
	// or where there is no claim.
	Labels, Tried bool
	Volumes       bool // kept volumes are labelled by a policy of this version
}

// Any reports whether the cluster has a policy for this identity.
func (p Policies) Any() bool {
	for _, one := range p.All {
		if one.Found || one.Bound {
			return true
		}
	}
	return p.Enforced
}
