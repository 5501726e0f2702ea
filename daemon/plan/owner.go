package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
)

// OwnerFacts is everything that a decision about whose a pool is depends on. The marker's own node and cluster
// are compared by hostcheck; here is what the records and the cluster say.
type OwnerFacts struct {
	Pool          Pool
	Node          string
	NodeKnown     bool   // the cluster has a Node of this name
	Cluster       string // "" where this daemon may not know it
	MarkedCluster string // "" in a marker of an earlier version
	Census        Census
}

// Census is what the records of a pool say of its owner.
type Census struct {
	Others map[string]int // how many are of a node that this one is not, by its name
	Scopes map[string]int // how many may have an object that was made when the pool had another scope, by that
	// Objects is how many should have an object in this cluster: all but those that are retained, being
	// removed or archived. Absent is whether none of those that were looked for has an object or a claim.
	Objects int
	Absent  bool
}

// Count takes the census of a pool's records. Absent is for the caller, who can ask the API.
func Count(records []record.Record, pool Pool, node string, former []string) Census {
	c := Census{Others: map[string]int{}, Scopes: map[string]int{}}
	for _, r := range records {
		sameScope := r.Scope == "" || r.Scope == pool.Scope || ofOneNode(r.Scope) && pool.OfOneNode()
		switch {
		case !sameScope && r.MayHaveObject():
			c.Scopes[r.Scope]++
		case !sameScope:
		case pool.OfOneNode() && !NodeNamed(r.Node, node, former):
			c.Others[r.Node]++
		}
		if r.HasObject() {
			c.Objects++
		}
	}
	return c
}

// Objection is something that keeps a pool closed, or is only said where Warn is set.
type Objection struct {
	Reason, Message string
	Warn            bool
}

// Closes reports whether the records keep the pool closed.
func (c Census) Closes() bool { return len(c.Others) > 0 || len(c.ofAllNodes()) > 0 }

// ofAllNodes are those of Scopes whose volumes bear no node's name: no daemon watches them any more.
func (c Census) ofAllNodes() map[string]int {
	all := map[string]int{}
	for scope, n := range c.Scopes {
		if !ofOneNode(scope) {
			all[scope] = n
		}
	}
	return all
}

type ownerRule func(OwnerFacts) (Objection, bool)

// ownerRules is the specification, the most telling first.
var ownerRules = []ownerRule{nodeNotFound, recordsOfOthers, recordsUnknownHere, scopeLeft, scopeChanged}

// ForOwner finds what speaks against working in a pool.
func ForOwner(f OwnerFacts) []Objection {
	var all []Objection
	for _, rule := range ownerRules {
		if o, applies := rule(f); applies {
			all = append(all, o)
		}
	}
	return all
}

// nodeNotFound: a name that no Node has is a host's name before it got its own ("localhost"), or a typing error.
func nodeNotFound(f OwnerFacts) (Objection, bool) {
	return Objection{Reason: ReasonNodeNotFound, Message: fmt.Sprintf("the cluster has no node %q", f.Node)}, !f.NodeKnown
}

func recordsOfOthers(f OwnerFacts) (Objection, bool) {
	return Objection{Reason: ReasonOtherNode, Message: fmt.Sprintf("%s has records of volumes of other nodes (%s), and this node's name is %q",
		f.Pool.Path, counted(f.Census.Others), f.Node)}, len(f.Census.Others) > 0
}

// recordsUnknownHere is asked once, of a pool whose marker says nothing: the daemon of an earlier version wrote it.
func recordsUnknownHere(f OwnerFacts) (Objection, bool) {
	return Objection{Reason: ReasonOtherCluster, Message: fmt.Sprintf("%s has records of volumes, and the cluster with the UID %s has neither object nor claim of any of them",
		f.Pool.Path, f.Cluster)}, f.MarkedCluster == "" && f.Cluster != "" && f.Census.Objects > 0 && f.Census.Absent
}

// scopeLeft: no daemon would remove them with this scope, and daemons whose configuration was not changed may still
// work here by the one before.
func scopeLeft(f OwnerFacts) (Objection, bool) {
	left := f.Census.ofAllNodes()
	return Objection{Reason: ReasonScopeChanged, Message: fmt.Sprintf(
		"%s has volumes that were made with another scope (%s), and the pool has scope %s, with which no daemon removes them",
		f.Pool.Path, counted(left), f.Pool.scope())}, len(left) > 0
}

// scopeChanged: a volume that bears a node's name is watched by that node, and in a shared pool found by its record.
func scopeChanged(f OwnerFacts) (Objection, bool) {
	n := f.Census.Scopes[ScopeNode]
	return Objection{Warn: true, Reason: ReasonScopeChanged, Message: fmt.Sprintf(
		"%s has volumes that were made with another scope (%s: %d), and the pool has scope %s: they stay volumes of one node until they are deleted",
		f.Pool.Path, ScopeNode, n, f.Pool.scope())}, n > 0
}

// counted is "node-a: 2, node-b: 1", with three names at most.
func counted(by map[string]int) string {
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
