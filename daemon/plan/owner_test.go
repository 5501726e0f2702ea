package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// What speaks against working in a pool, in the order and the words in which it is said.
func TestForOwner(t *testing.T) {
	good := func() OwnerFacts {
		return OwnerFacts{Pool: Pool{Name: "fast", Path: "/srv/fast", Scope: ScopeNode}, Node: us, NodeKnown: true, Cluster: "c-1", MarkedCluster: "c-1"}
	}
	for name, c := range map[string]struct {
		change func(*OwnerFacts)
		want   []string
	}{
		"nothing":                 {func(*OwnerFacts) {}, nil},
		"no such Node":            {func(f *OwnerFacts) { f.NodeKnown = false }, []string{`NodeNotFound: the cluster has no node "node-a"`}},
		"records of another node": {func(f *OwnerFacts) { f.Census.Others = map[string]int{"b": 2} }, []string{`OtherNode: /srv/fast has records of volumes of other nodes (b: 2), and this node's name is "node-a"`}},
		"records of many nodes":   {func(f *OwnerFacts) { f.Census.Others = map[string]int{"e": 1, "b": 2, "d": 3, "c": 4} }, []string{`OtherNode: /srv/fast has records of volumes of other nodes (b: 2, c: 4, d: 3, and 1 more), and this node's name is "node-a"`}},
		"absent, and marked":      {func(f *OwnerFacts) { f.Census = Census{Objects: 1, Absent: true} }, nil},
		"absent":                  {func(f *OwnerFacts) { f.MarkedCluster, f.Census = "", Census{Objects: 1, Absent: true} }, []string{"OtherCluster: /srv/fast has records of volumes, and the cluster with the UID c-1 has neither object nor claim of any of them"}},
		"absent, and meant":       {func(f *OwnerFacts) { f.MarkedCluster, f.Census = "any", Census{Objects: 1, Absent: true} }, nil},
		"absent, cluster unknown": {func(f *OwnerFacts) { f.MarkedCluster, f.Cluster, f.Census = "", "", Census{Objects: 1, Absent: true} }, nil},
		"nothing could be absent": {func(f *OwnerFacts) { f.MarkedCluster, f.Census = "", Census{Absent: true} }, nil},
		"another scope":           {func(f *OwnerFacts) { f.Census.Scopes = map[string]int{ScopeShared: 3} }, []string{"warn ScopeChanged: /srv/fast has volumes that were made with another scope (shared: 3), and the pool has scope node: they are not removed when their claims are deleted"}},
		"everything": {func(f *OwnerFacts) {
			*f = OwnerFacts{Cluster: "c", Census: Census{map[string]int{"b": 1}, map[string]int{"x": 1}, 1, true}}
		}, []string{"NodeNotFound", "OtherNode", "OtherCluster", "warn ScopeChanged"}},
	} {
		f := good()
		c.change(&f)
		var got []string
		for _, o := range ForOwner(f) {
			text := o.Reason + ": " + o.Message
			if o.Warn {
				text = "warn " + text
			}
			if name == "everything" {
				text, _, _ = strings.Cut(text, ":")
			}
			got = append(got, text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

func TestCount(t *testing.T) {
	records := []Record{
		{Place: InPool, Node: us, Scope: ScopeNode}, {Place: InPool, Node: us}, {Place: InPool},
		{Place: InTrash, Node: them, Scope: ScopeNode}, {Place: InPool, Node: "old", Scope: ScopeNode},
		{Place: InPool, Node: us, Scope: ScopeNode, Retained: true}, {Place: InStaging, Node: us, Scope: ScopeNode},
		{Place: InPool, Node: them, Scope: ScopeShared}, {Place: InTrash, Node: them, Scope: ScopeShared}, {Place: InPool, Node: us, Scope: ScopeEveryNode, Unpublished: true},
	}
	for scope, want := range map[string]string{
		ScopeNode:      "others map[node-b:1], scopes map[shared:1], 5 objects",
		"":             "others map[node-b:1], scopes map[shared:1], 5 objects",
		ScopeShared:    "others map[], scopes map[node:2], 5 objects",
		ScopeEveryNode: "others map[], scopes map[node:2 shared:1], 5 objects",
	} {
		c := Count(records, Pool{Scope: scope}, us, []string{"old"})
		if got := fmt.Sprintf("others %v, scopes %v, %d objects", c.Others, c.Scopes, c.Objects); got != want {
			t.Errorf("scope %q: %s, want %s", scope, got, want)
		}
	}
}
