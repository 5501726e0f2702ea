package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
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
		"scope shared before": {func(f *OwnerFacts) { f.Census.Scopes = map[string]int{ScopeShared: 3, ScopeEveryNode: 1} }, []string{
			"ScopeChanged: /srv/fast has volumes that were made with another scope (every-node: 1, shared: 3), and the pool has scope node, with which no daemon removes them"}},
		"scope node before": {func(f *OwnerFacts) { f.Pool.Scope, f.Census.Scopes = ScopeShared, map[string]int{ScopeNode: 2} }, []string{
			"warn ScopeChanged: /srv/fast has volumes that were made with another scope (node: 2), and the pool has scope shared: they stay volumes of one node until they are deleted"}},
		"everything": {func(f *OwnerFacts) {
			*f = OwnerFacts{Cluster: "c", Census: Census{map[string]int{"b": 1}, map[string]int{ScopeShared: 1, ScopeNode: 1}, 1, true}}
		}, []string{"NodeNotFound", "OtherNode", "OtherCluster", "ScopeChanged", "warn ScopeChanged"}},
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
	records := []record.Record{
		{Place: record.InPool, Node: us, Scope: ScopeNode}, {Place: record.InPool, Node: us}, {Place: record.InPool},
		{Place: record.InTrash, Node: them, Scope: ScopeNode}, {Place: record.InPool, Node: "old", Scope: ScopeNode},
		{Place: record.InPool, Node: us, Scope: ScopeNode, Retained: true}, {Place: record.InStaging, Node: us, Scope: ScopeNode},
		{Place: record.InPool, Node: them, Scope: ScopeShared}, {Place: record.InTrash, Node: them, Scope: ScopeShared}, {Place: record.InPool, Node: us, Scope: ScopeEveryNode, Unpublished: true},
	}
	for scope, want := range map[string]string{
		ScopeNode:      "others map[node-b:1], scopes map[every-node:1 shared:2], 5 objects, closes true",
		"":             "others map[node-b:1], scopes map[every-node:1 shared:2], 5 objects, closes true",
		ScopeShared:    "others map[], scopes map[every-node:1 node:3], 5 objects, closes true",
		ScopeEveryNode: "others map[], scopes map[node:3 shared:2], 5 objects, closes true",
	} {
		c := Count(records, Pool{Scope: scope}, us, []string{"old"})
		if got := fmt.Sprintf("others %v, scopes %v, %d objects, closes %t", c.Others, c.Scopes, c.Objects, c.Closes()); got != want {
			t.Errorf("scope %q: %s, want %s", scope, got, want)
		}
	}
	ofOne := []record.Record{{Place: record.InPool, Node: us, Scope: ScopeNode}, {Place: record.InArchive, Scope: ScopeShared}, {Place: record.InPool, Scope: ScopeEveryNode, Retained: true}}
	for _, scope := range []string{ScopeNode, ScopeShared, ScopeEveryNode} {
		if c := Count(ofOne, Pool{Scope: scope}, us, nil); c.Closes() {
			t.Errorf("scope %s: closed by %+v", scope, c)
		}
	}
}
