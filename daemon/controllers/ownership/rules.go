package ownership

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// Facts is everything that the decision about a pool's owner depends on. hostcheck compares the
// node and the cluster that the marker names; the facts are what the records and the cluster say.
type Facts struct {
	Pool          plan.Pool
	Node          string
	NodeKnown     bool   // the cluster has a Node of this name
	OtherHost     string // what that Node says that is not this host's, "" for nothing
	Holder        string // the host that works under the node's name, "" for this one
	BoundNode     string // that the daemon's token is bound to, "" for none
	Cluster       string // "" where this daemon may not know it
	MarkedCluster string // "" in a new marker
	MarkedNode    string // whose alone the pool is
	MarkedScope   string // hostcheck.ScopeShared where nodes share the pool
	Census        Census
}

// Census is what the records of a pool say of its owner.
type Census struct {
	Others map[string]int // how many are of a node that this one is not, by its name
	Scopes map[string]int // how many may have an object that was made when the pool had another scope, by that
	Shared int            // how many may have an object that was made when the pool was shared
	// Objects is how many should have an object in this cluster: all but those that are retained,
	// being removed or archived. Absent is whether none of those that were looked for has an object
	// or a claim.
	Objects int
	Absent  bool
	// Here is how many have an object that points into the pool, and Moved how many have one that
	// points to their directories below another path, which is From: pods look there.
	Here, Moved int
	From        string
}

// CensusOf counts a pool's records. former are names that the node had before. Absent stays false:
// the caller asks the API server.
func CensusOf(records []record.Record, pool plan.Pool, node string, former []string) Census {
	c := Census{Others: map[string]int{}, Scopes: map[string]int{}}
	for _, r := range records {
		sameScope := r.Scope == "" || r.Scope == pool.Scope || ofOneNode(r.Scope) && pool.OfOneNode()
		if r.Scope == plan.ScopeShared && r.MayHaveObject() {
			c.Shared++
		}
		switch {
		case !sameScope && r.MayHaveObject():
			c.Scopes[r.Scope]++
		case !sameScope:
		case pool.OfOneNode() && !plan.NodeNamed(r.Node, node, former):
			c.Others[r.Node]++
		}
		if r.HasObject() {
			c.Objects++
		}
	}
	return c
}

// Closes reports whether the records keep the pool closed.
func (c Census) Closes() bool { return len(c.Others) > 0 || len(c.ofAllNodes()) > 0 || c.moved() }

// moved reports whether most volumes are looked for elsewhere. Single ones may be made by hand, and
// are PathMismatch.
func (c Census) moved() bool { return c.Moved > c.Here }

// point counts where the objects of records say that the directories are.
func (c *Census) point(
	records []record.Record, pool plan.Pool,
	object func(name string) (*corev1.PersistentVolume, bool),
) {
	for _, r := range records {
		v, watched := object(r.PV)
		if !watched || r.Place != record.InPool || plan.OnEveryNode(v) {
			continue
		}
		switch at := plan.PathOf(v); {
		case at == pool.Path+"/"+r.Directory:
			c.Here++
		case path.Base(at) == r.Directory:
			c.Moved, c.From = c.Moved+1, path.Dir(at)
		}
	}
}

// ofAllNodes is those of Scopes whose volumes have no node's label: no daemon watches them any
// more.
func (c Census) ofAllNodes() map[string]int {
	all := maps.Clone(c.Scopes)
	maps.DeleteFunc(all, func(scope string, _ int) bool { return ofOneNode(scope) })
	return all
}

type rule func(Facts) (hostcheck.Finding, bool)

// rules is the specification, the most telling first. All that apply are reported.
var rules = []rule{
	nodeUnknown, nodeOfOtherHost, nameOfOtherHost, credentialOfOtherNode, recordsOfOtherNodes,
	recordsOfOtherCluster, scopeWithoutWatcher, ofAnotherNodeAlone, ofNodesThatShareIt, pathChanged,
	scopeOfOneNodeBefore,
}

// Findings returns what keeps a daemon from working in a pool, and what the pool's report should
// warn of.
func Findings(f Facts) []hostcheck.Finding {
	var all []hostcheck.Finding
	for _, rule := range rules {
		if finding, applies := rule(f); applies {
			all = append(all, finding)
		}
	}
	return all
}

// nodeUnknown: a name that no Node has is a host's name before it got its own ("localhost"), or a
// typing error.
func nodeUnknown(f Facts) (hostcheck.Finding, bool) {
	return finding(plan.ReasonNodeNotFound, "the cluster has no node %q", f.Node), !f.NodeKnown
}

// nodeOfOtherHost: a host with the image or the configuration of another, which would do that one's
// work on its own disk. A kubelet that has not started since the boot has reported the boot before.
func nodeOfOtherHost(f Facts) (hostcheck.Finding, bool) {
	return finding(plan.ReasonOtherHost, "the Node %q is reported by a kubelet with the %s", f.Node, f.OtherHost), f.OtherHost != ""
}

// nameOfOtherHost: a Node without a kubelet tells nothing of its host, and the hosts that have its
// name share a lease.
func nameOfOtherHost(f Facts) (hostcheck.Finding, bool) {
	return finding(plan.ReasonOtherHost,
		"another host works as the node %q: it holds its lease, as %q",
		f.Node, words.Name(f.Holder)), f.Holder != ""
}

func credentialOfOtherNode(f Facts) (hostcheck.Finding, bool) {
	return finding(plan.ReasonOtherHost, "the credential is bound to the Node %q, and this node's name is %q", f.BoundNode, f.Node),
		f.BoundNode != "" && f.BoundNode != f.Node
}

func recordsOfOtherNodes(f Facts) (hostcheck.Finding, bool) {
	others := f.Census.Others
	return finding(plan.ReasonOtherNode, "%s has records of volumes of other nodes (%s), and this node's name is %q",
		f.Pool.Path, list(others), f.Node), len(others) > 0
}

// recordsOfOtherCluster applies once, to a pool whose marker names no cluster: it was made anew, in
// a pool that had volumes.
func recordsOfOtherCluster(f Facts) (hostcheck.Finding, bool) {
	known := f.MarkedCluster == "" && f.Cluster != ""
	return finding(plan.ReasonOtherCluster, "%s has records of volumes, and the cluster with the UID %s has neither object nor claim of any of them",
		f.Pool.Path, f.Cluster), known && f.Census.Objects > 0 && f.Census.Absent
}

// scopeWithoutWatcher: no daemon would remove the volumes with this scope, and daemons whose
// configuration was not changed may still work in the pool with the scope before.
func scopeWithoutWatcher(f Facts) (hostcheck.Finding, bool) {
	left := f.Census.ofAllNodes()
	return finding(plan.ReasonScopeChanged,
		"%s has volumes that were made with another scope (%s), and the pool has scope %s, with which no daemon removes them",
		f.Pool.Path, list(left), scopeOf(f.Pool)), len(left) > 0
}

// ofAnotherNodeAlone: that node's daemon asks no lease before it works in the pool. A pool that was
// shared by a version that did not write so into the marker has volumes of that scope, with which
// that node's daemon keeps out.
func ofAnotherNodeAlone(f Facts) (hostcheck.Finding, bool) {
	bad := f.Pool.Scope == plan.ScopeShared && f.MarkedNode != "" && f.MarkedNode != f.Node && f.Census.Shared == 0
	return finding(plan.ReasonOtherNode, "%s is a pool of node %q alone by its marker, and that node's daemon asks no other before it works there: "+
		"set its scope to shared on that node first, and restart the daemon there", f.Pool.Path, f.MarkedNode), bad
}

// ofNodesThatShareIt: daemons of other nodes work in the pool as the lease allows, of which this
// one would know nothing. Volumes that were made so are told before.
func ofNodesThatShareIt(f Facts) (hostcheck.Finding, bool) {
	bad := f.Pool.Scope != plan.ScopeShared && f.MarkedScope == hostcheck.ScopeShared && len(f.Census.ofAllNodes()) == 0
	return finding(plan.ReasonScopeChanged, "%s is a pool that nodes share by its marker, and the pool has scope %s", f.Pool.Path, scopeOf(f.Pool)), bad
}

// pathChanged: the pool's path was changed together with its mount. Its storage is the right one,
// and no pod finds a volume.
func pathChanged(f Facts) (hostcheck.Finding, bool) {
	return finding(plan.ReasonPathChanged, "the PersistentVolumes of %d volumes in %s say "+
		"that they are in %s, where their pods look for them",
		f.Census.Moved, f.Pool.Path, words.Quoted(f.Census.From)), f.Census.moved()
}

// scopeOfOneNodeBefore is a warning: a volume with a node's label is watched by that node, and in a
// shared pool found by its record.
func scopeOfOneNodeBefore(f Facts) (hostcheck.Finding, bool) {
	n := f.Census.Scopes[plan.ScopeNode]
	warning := finding(plan.ReasonScopeChanged,
		"%s has volumes that were made with another scope (%s: %d), and the pool has scope %s: they stay volumes of one node until they are deleted",
		f.Pool.Path, plan.ScopeNode, n, scopeOf(f.Pool))
	warning.Severity = hostcheck.Warn
	return warning, n > 0
}

// finding is one that keeps the pool closed.
func finding(reason, format string, args ...any) hostcheck.Finding {
	return hostcheck.Finding{Reason: reason, Severity: hostcheck.Close, Message: fmt.Sprintf(format, args...)}
}

// scopeOf is the pool's scope as it is spelt in the configuration.
func scopeOf(p plan.Pool) string { return cmp.Or(p.Scope, plan.ScopeNode) }

func ofOneNode(scope string) bool { return plan.Pool{Scope: scope}.OfOneNode() }

// list is "node-a: 2, node-b: 1", with three names at most.
func list(by map[string]int) string {
	names := slices.Sorted(maps.Keys(by))
	var all []string
	for _, name := range names[:min(len(names), 3)] {
		all = append(all, fmt.Sprintf("%s: %d", name, by[name]))
	}
	if len(names) > 3 {
		all = append(all, fmt.Sprintf("and %d more", len(names)-3))
	}
	return strings.Join(all, ", ")
}
