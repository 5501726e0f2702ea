package clustercheck

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// The policies.

// namesOf are the policies that are as is says.
func (p Policies) namesOf(is func(Policy) bool) (names []string) {
	for _, one := range p.All {
		if is(one) {
			names = append(names, one.Name)
		}
	}
	return names
}

func noPolicies(f Facts) (Line, bool) {
	return warning(ReasonNoPolicies, "none confines this node's token: a thief of it can change the volumes and claims of all nodes"), !f.Policies.Any()
}

func policiesUnreadable(f Facts) (Line, bool) {
	return warning(ReasonPoliciesUnreadable, "they are in force, and this identity may not read which: the cluster has the manifests of an earlier version"), !f.Policies.Readable
}

// policiesReadConfigMap comes before what else is wrong with them: it is the cluster that is in
// danger.
func policiesReadConfigMap(f Facts) (Line, bool) {
	names := f.Policies.namesOf(func(p Policy) bool { return p.Parametrised })
	return wrong(ReasonPoliciesReadConfigMap, "%d of %d are of an earlier version and read the ConfigMap hostpath-provisioner-confinement of the namespace %s: "+
		"while it or its namespace is missing, the API server refuses everybody's leases, tokens, claims, volumes and events", len(names), len(f.Policies.All), f.Configured.Namespace), len(names) > 0
}

func policiesMissing(f Facts) (Line, bool) {
	names := f.Policies.namesOf(func(p Policy) bool { return !p.Found })
	return wrong(ReasonPoliciesMissing, "%d of %d are missing: %s", len(names), len(f.Policies.All), strings.Join(names, ", ")), len(names) > 0
}

func policiesUnbound(f Facts) (Line, bool) {
	names := f.Policies.namesOf(func(p Policy) bool { return !p.Bound || !p.SameBinding })
	return wrong(ReasonPoliciesUnbound, "%d of %d have no binding, or another one than that of this version, and may refuse nothing: %s", len(names), len(f.Policies.All), strings.Join(names, ", ")), len(names) > 0
}

func policiesNotEnforced(f Facts) (Line, bool) {
	return wrong(ReasonPoliciesNotEnforced, "they are there and bound, and the API server accepted a volume that they forbid"), !f.Policies.Enforced && f.ownIdentity()
}

func policiesDiffer(f Facts) (Line, bool) {
	names := f.Policies.namesOf(func(p Policy) bool { return !p.Same })
	return warning(ReasonPoliciesDiffer, "%d of %d are not those of this version: %s", len(names), len(f.Policies.All), strings.Join(names, ", ")), len(names) > 0
}

func policiesGood(f Facts) string {
	text := fmt.Sprintf("all %d are there, bound and of this version", len(f.Policies.All))
	if f.Policies.Enforced {
		text += "; the API server refused a volume that they forbid"
	}
	return text
}

// The lists in the policies.

// parametersNotRead: without policies of this form there are none.
func parametersNotRead(f Facts) (Line, bool) {
	return Line{Status: OK, Message: "without policies of this version that this identity may read there are none to compare"}, !f.Policies.Any() || !f.Parameters.Readable
}

func provisionerNotListed(f Facts) (Line, bool) {
	listed := f.Parameters.Lists["provisioners"]
	if slices.Contains(listed, "*") {
		return Line{}, false
	}
	lacks := without(f.Configured.Provisioners, listed)
	return wrong(ReasonProvisionerNotListed, "the policies do not list %s: no volume is made for its classes", strings.Join(lacks, ", ")), len(lacks) > 0
}

// pathFlags are the lists of paths and the flags that they come from, by the scope of a pool.
var pathFlags = map[string]struct{ list, flag string }{
	"node": {"paths", "--pool-path"}, "shared": {"sharedPaths", "--shared-pool-path"}, "every-node": {"everyNodePaths", "--every-node-pool-path"},
}

func poolNotListed(f Facts) (Line, bool) {
	var lacks []string
	for _, pool := range f.Configured.Pools {
		of := pathFlags[pool.Scope]
		is := func(listed string) bool { return listed == pool.Path || listed == path.Dir(pool.Path)+"/*" }
		if !slices.ContainsFunc(f.Parameters.Lists[of.list], is) {
			lacks = append(lacks,
				fmt.Sprintf("%s of pool %s for %s", pool.Path, pool.Name, of.flag))
		}
	}
	return wrong(ReasonPoolNotListed, "the policies do not list %s: no volume is made there", strings.Join(lacks, ", ")), len(lacks) > 0
}

func hostnameNotListed(f Facts) (Line, bool) {
	listed, found := f.Parameters.Hostnames[f.Configured.Node]
	if !found {
		listed = f.Configured.Node
	}
	node := slices.ContainsFunc(f.Configured.Pools, func(p Pool) bool { return p.Scope == "node" })
	return wrong(ReasonHostnameNotListed, "the policies have %q as the hostname of this node, and the Node's label is %q: no volume is made", listed, f.Node.Hostname), node && f.Node.Found && listed != f.Node.Hostname
}

// classNotListed compares as the policies do: a class that is named after a listed provisioner need
// not be listed.
func classNotListed(f Facts) (Line, bool) {
	classes, provisioners := f.Parameters.Lists["classes"], f.Parameters.Lists["provisioners"]
	if slices.Contains(provisioners, "*") && len(classes) == 0 {
		return Line{}, false
	}
	lacks := slices.DeleteFunc(slices.Clone(f.Parameters.Classes), func(class string) bool {
		return slices.ContainsFunc(classes, func(listed string) bool {
			prefix, any := strings.CutSuffix(listed, "*")
			return class == listed || any && strings.HasPrefix(class, prefix)
		}) || slices.ContainsFunc(provisioners, func(p string) bool {
			p = strings.NewReplacer("/", "-", "_", "-").Replace(strings.ToLower(p))
			return class == p || strings.HasPrefix(class, p+"-")
		})
	})
	return wrong(ReasonClassNotListed, "the policies do not list %s, which is not named after a provisioner: no volume is made for its claims", strings.Join(lacks, ", ")), len(lacks) > 0
}

func audienceNotListed(f Facts) (Line, bool) {
	listed := f.Parameters.Lists["audiences"]
	lacks := without(f.Credential.Audiences, listed)
	return wrong(ReasonAudienceNotListed, "the policies do not list %s as an audience: the token is not renewed", strings.Join(lacks, ", ")), len(listed) > 0 && len(lacks) > 0
}

// without returns those of all that are not listed.
func without(all, listed []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(one string) bool { return slices.Contains(listed, one) })
}

func parametersGood(f Facts) string {
	text := fmt.Sprintf("they list the provisioners, their classes, the paths of all %d pools and the hostname of this node", len(f.Configured.Pools))
	if len(f.Parameters.Lists["audiences"]) == 0 && len(f.Credential.Audiences) > 0 {
		text += "; without audiences (--audience " + words.Line(strings.Join(f.Credential.Audiences, " --audience "), errorMax) + ") the identity gets tokens for any"
	}
	return text
}

// The claim index.

func indexUnknown(f Facts) (Line, bool) {
	says := fmt.Sprintf("the API server has no MutatingAdmissionPolicy: it is %s, not 1.36 or later; "+
		"the daemon reads all claims", words.Name(f.API.Version))
	return Line{Status: OK, Message: says}, f.Index.Unserved
}

func indexAbsent(f Facts) (Line, bool) {
	return Line{Status: OK, Message: "the cluster has none: the daemon reads all claims"}, !f.Index.Policy && !f.Index.Binding && !f.Index.Volumes
}

func indexUnbound(f Facts) (Line, bool) {
	return warning(ReasonIndexUnbound, "the policy hostpath-provisioner-claims or its binding is missing: the daemon reads all claims"), !f.Index.Policy || !f.Index.Binding
}

func indexDiffers(f Facts) (Line, bool) {
	return warning(ReasonIndexDiffers, "the policy hostpath-provisioner-claims or its binding is not that of this version: the daemon reads all claims"), !f.Index.Same
}

func indexNotEnforced(f Facts) (Line, bool) {
	return warning(ReasonIndexNotEnforced, "the policy hostpath-provisioner-claims is there, and the API server labels no claim: the daemon reads all claims"), f.Index.Tried && !f.Index.Labels
}

func volumesUnlabelled(f Facts) (Line, bool) {
	return warning(ReasonVolumesUnlabelled, "the policy hostpath-provisioner-volumes or its binding is missing, or is not that of this version: pre-bound volumes are looked for among all volumes"), !f.Index.Volumes
}

func indexGood(f Facts) string {
	if !f.Index.Tried {
		return "there, bound and of this version; the cluster has no claim to try it with"
	}
	return "there, bound and of this version; the API server labels claims"
}
