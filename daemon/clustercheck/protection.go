package clustercheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/words"
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

// The ConfigMap that the policies read.

// parametersNotRead: without policies it means nothing, and a cluster without them has no right to it.
func parametersNotRead(f Facts) (Line, bool) {
	return Line{Status: OK, Message: "without policies that this identity may read there are none to compare"}, !f.Policies.Any() || !f.Parameters.Readable
}

func parametersMissing(f Facts) (Line, bool) {
	return wrong(ReasonParametersMissing, "%s is missing from the namespace %s: the policies refuse everything", policyParameters, f.Configured.Namespace), !f.Parameters.Found
}

// list is what the policies take for the entries of a key.
func (p Parameters) list(key string) (all []string) {
	for line := range strings.SplitSeq(p.Data[key], "\n") {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

func provisionerNotListed(f Facts) (Line, bool) {
	listed := f.Parameters.list("provisioners")
	if slices.Contains(listed, "*") {
		return Line{}, false
	}
	lacks := slices.DeleteFunc(slices.Clone(f.Configured.Provisioners), func(p string) bool { return slices.Contains(listed, p) })
	return wrong(ReasonProvisionerNotListed, "%s does not list %s under provisioners: no volume is made for its classes", policyParameters, strings.Join(lacks, ", ")), len(lacks) > 0
}

// pathKeys are the keys of the paths, by the scope of a pool.
var pathKeys = map[string]string{"node": "paths", "shared": "shared-paths", "every-node": "every-node-paths"}

func poolNotListed(f Facts) (Line, bool) {
	var lacks []string
	for _, pool := range f.Configured.Pools {
		key := pathKeys[pool.Scope]
		under := func(path string) bool { return path != "/" && strings.HasPrefix(pool.Path+"/", path+"/") }
		if !slices.ContainsFunc(f.Parameters.list(key), under) {
			lacks = append(lacks, fmt.Sprintf("%s of pool %s under %s", pool.Path, pool.Name, key))
		}
	}
	return wrong(ReasonPoolNotListed, "%s does not list %s: no volume is made there", policyParameters, strings.Join(lacks, ", ")), len(lacks) > 0
}

func hostnameNotListed(f Facts) (Line, bool) {
	key := "hostname." + f.Configured.Node
	listed, found := f.Parameters.Data[key]
	if !found {
		listed = f.Configured.Node
	}
	node := slices.ContainsFunc(f.Configured.Pools, func(p Pool) bool { return p.Scope == "node" })
	return wrong(ReasonHostnameNotListed, "%s has for the key %s %q, and the Node's label is %q: no volume is made", policyParameters, key, listed, f.Node.Hostname), node && f.Node.Found && listed != f.Node.Hostname
}

func audienceNotListed(f Facts) (Line, bool) {
	_, given := f.Parameters.Data["audiences"]
	listed := f.Parameters.list("audiences")
	lacks := slices.DeleteFunc(slices.Clone(f.Credential.Audiences), func(a string) bool { return slices.Contains(listed, a) })
	return wrong(ReasonAudienceNotListed, "%s does not list %s under audiences: the token is not renewed", policyParameters, strings.Join(lacks, ", ")), given && len(lacks) > 0
}

func parametersGood(f Facts) string {
	text := fmt.Sprintf("they list the provisioners, the paths of all %d pools and the hostname of this node", len(f.Configured.Pools))
	if _, given := f.Parameters.Data["audiences"]; !given && len(f.Credential.Audiences) > 0 {
		text += "; without the key audiences (" + words.Line(strings.Join(f.Credential.Audiences, ", "), errorMax) + " would be its list) the identity gets tokens for any"
	}
	return text
}

// The claim index.

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
	return warning(ReasonVolumesUnlabelled, "the policy hostpath-provisioner-volumes or its binding is missing, or is not that of this version: kept volumes are looked for among all volumes"), !f.Index.Volumes
}

func indexGood(f Facts) string {
	if !f.Index.Tried {
		return "there, bound and of this version; the cluster has no claim to try it with"
	}
	return "there, bound and of this version; the API server labels claims"
}
