package ownership

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// What keeps a daemon from working in a pool, in the order and the words of the report.
func TestFindings(t *testing.T) {
	good := func() Facts {
		return Facts{Pool: plan.Pool{Name: "fast", Path: "/srv/fast", Scope: plan.ScopeNode}, Node: "node-a", NodeKnown: true, Cluster: "c-1", MarkedCluster: "c-1"}
	}
	for name, c := range map[string]struct {
		change func(*Facts)
		want   []string
	}{
		"nothing":      {func(*Facts) {}, nil},
		"no such Node": {func(f *Facts) { f.NodeKnown = false }, []string{`NodeNotFound: the cluster has no node "node-a"`}},
		"another host": {func(f *Facts) { f.OtherHost = `boot ID "a", and this host's is "b"` }, []string{
			`OtherHost: the Node "node-a" is reported by a kubelet with the boot ID "a", and this host's is "b"`}},
		"a name that another host has": {func(f *Facts) { f.Holder = "node-a_2" }, []string{
			`OtherHost: another host works as the node "node-a": ` +
				`it holds its lease, as "node-a_2"`}},
		"another node's credential": {func(f *Facts) { f.BoundNode = "node-b" }, []string{
			`OtherHost: the credential is bound to the Node "node-b", and this node's name is "node-a"`}},
		"its own credential":      {func(f *Facts) { f.BoundNode = "node-a" }, nil},
		"records of another node": {func(f *Facts) { f.Census.Others = map[string]int{"b": 2} }, []string{`OtherNode: /srv/fast has records of volumes of other nodes (b: 2), and this node's name is "node-a"`}},
		"records of many nodes":   {func(f *Facts) { f.Census.Others = map[string]int{"e": 1, "b": 2, "d": 3, "c": 4} }, []string{`OtherNode: /srv/fast has records of volumes of other nodes (b: 2, c: 4, d: 3, and 1 more), and this node's name is "node-a"`}},
		"absent, and marked":      {func(f *Facts) { f.Census = Census{Objects: 1, Absent: true} }, nil},
		"absent":                  {func(f *Facts) { f.MarkedCluster, f.Census = "", Census{Objects: 1, Absent: true} }, []string{"OtherCluster: /srv/fast has records of volumes, and the cluster with the UID c-1 has neither object nor claim of any of them"}},
		"absent, and meant":       {func(f *Facts) { f.MarkedCluster, f.Census = "any", Census{Objects: 1, Absent: true} }, nil},
		"absent, cluster unknown": {func(f *Facts) { f.MarkedCluster, f.Cluster, f.Census = "", "", Census{Objects: 1, Absent: true} }, nil},
		"nothing could be absent": {func(f *Facts) { f.MarkedCluster, f.Census = "", Census{Absent: true} }, nil},
		"scope shared before": {func(f *Facts) { f.Census.Scopes = map[string]int{plan.ScopeShared: 3, plan.ScopeEveryNode: 1} }, []string{
			"ScopeChanged: /srv/fast has volumes that were made with another scope (every-node: 1, shared: 3), and the pool has scope node, with which no daemon removes them"}},
		"scope node before": {func(f *Facts) { f.Pool.Scope, f.Census.Scopes = plan.ScopeShared, map[string]int{plan.ScopeNode: 2} }, []string{
			"warn ScopeChanged: /srv/fast has volumes that were made with another scope (node: 2), and the pool has scope shared: they stay volumes of one node until they are deleted"}},
		"another node's alone": {func(f *Facts) { f.Pool.Scope, f.MarkedNode = plan.ScopeShared, "node-b" }, []string{
			`OtherNode: /srv/fast is a pool of node "node-b" alone by its marker, and that node's daemon asks no other before it works there: ` +
				"set its scope to shared on that node first, and restart the daemon there"}},
		"another node's, with volumes of that": {func(f *Facts) {
			f.Pool.Scope, f.MarkedNode, f.Census.Scopes = plan.ScopeShared, "node-b", map[string]int{plan.ScopeNode: 1}
		}, []string{"OtherNode: /srv/fast is a pool of node \"node-b\" alone by its marker, and that node's daemon asks no other before it works there: " +
			"set its scope to shared on that node first, and restart the daemon there",
			"warn ScopeChanged: /srv/fast has volumes that were made with another scope (node: 1), and the pool has scope shared: they stay volumes of one node until they are deleted"}},
		"this node's alone, shared by now":           {func(f *Facts) { f.Pool.Scope, f.MarkedNode = plan.ScopeShared, "node-a" }, nil},
		"another node's, and shared since long":      {func(f *Facts) { f.Pool.Scope, f.MarkedNode, f.Census.Shared = plan.ScopeShared, "node-b", 1 }, nil},
		"another node's, a directory on every node":  {func(f *Facts) { f.Pool.Scope, f.MarkedNode = plan.ScopeEveryNode, "node-b" }, nil},
		"shared, and of one node by now":             {func(f *Facts) { f.MarkedScope = "shared" }, []string{"ScopeChanged: /srv/fast is a pool that nodes share by its marker, and the pool has scope node"}},
		"shared, and of the default scope by now":    {func(f *Facts) { f.Pool.Scope, f.MarkedScope = "", "shared" }, []string{"ScopeChanged: /srv/fast is a pool that nodes share by its marker, and the pool has scope node"}},
		"shared, and with a directory on every node": {func(f *Facts) { f.Pool.Scope, f.MarkedScope = plan.ScopeEveryNode, "shared" }, []string{"ScopeChanged: /srv/fast is a pool that nodes share by its marker, and the pool has scope every-node"}},
		"shared": {func(f *Facts) { f.Pool.Scope, f.MarkedScope = plan.ScopeShared, "shared" }, nil},
		"shared, with volumes of that": {func(f *Facts) { f.MarkedScope, f.Census.Scopes = "shared", map[string]int{plan.ScopeShared: 1} }, []string{
			"ScopeChanged: /srv/fast has volumes that were made with another scope (shared: 1), and the pool has scope node, with which no daemon removes them"}},
		"looked for elsewhere": {func(f *Facts) {
			f.Census = Census{Here: 1, Moved: 2, From: "/mnt"}
		}, []string{
			"PathChanged: the PersistentVolumes of 2 volumes in /srv/fast say that they are in " +
				`"/mnt", where their pods look for them`}},
		"one of two made by hand": {func(f *Facts) { f.Census = Census{Here: 1, Moved: 1} }, nil},
		"everything": {func(f *Facts) {
			scopes := map[string]int{plan.ScopeShared: 1, plan.ScopeNode: 1}
			all := Census{map[string]int{"b": 1}, scopes, 0, 1, true, 0, 1, "/mnt"}
			*f = Facts{Cluster: "c", Census: all}
		}, []string{"NodeNotFound", "OtherNode", "OtherCluster", "ScopeChanged", "PathChanged",
			"warn ScopeChanged"}},
	} {
		f := good()
		c.change(&f)
		var got []string
		for _, o := range Findings(f) {
			text := o.Reason + ": " + o.Message
			if o.Severity == hostcheck.Warn {
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

func TestCensusOf(t *testing.T) {
	records := []record.Record{
		{Place: record.InPool, Node: "node-a", Scope: plan.ScopeNode}, {Place: record.InPool, Node: "node-a"}, {Place: record.InPool},
		{Place: record.InTrash, Node: "node-b", Scope: plan.ScopeNode}, {Place: record.InPool, Node: "old", Scope: plan.ScopeNode},
		{Place: record.InPool, Node: "node-a", Scope: plan.ScopeNode, Retained: true}, {Place: record.InStaging, Node: "node-a", Scope: plan.ScopeNode},
		{Place: record.InPool, Node: "node-b", Scope: plan.ScopeShared}, {Place: record.InTrash, Node: "node-b", Scope: plan.ScopeShared}, {Place: record.InPool, Node: "node-a", Scope: plan.ScopeEveryNode, Unpublished: true},
	}
	for scope, want := range map[string]string{
		plan.ScopeNode:      "others map[node-b:1], scopes map[every-node:1 shared:2], 5 objects, 2 shared, closes true",
		"":                  "others map[node-b:1], scopes map[every-node:1 shared:2], 5 objects, 2 shared, closes true",
		plan.ScopeShared:    "others map[], scopes map[every-node:1 node:3], 5 objects, 2 shared, closes true",
		plan.ScopeEveryNode: "others map[], scopes map[node:3 shared:2], 5 objects, 2 shared, closes true",
	} {
		c := CensusOf(records, plan.Pool{Scope: scope}, "node-a", []string{"old"})
		if got := fmt.Sprintf("others %v, scopes %v, %d objects, %d shared, closes %t", c.Others, c.Scopes, c.Objects, c.Shared, c.Closes()); got != want {
			t.Errorf("scope %q: %s, want %s", scope, got, want)
		}
	}
	ofOne := []record.Record{{Place: record.InPool, Node: "node-a", Scope: plan.ScopeNode}, {Place: record.InArchive, Scope: plan.ScopeShared}, {Place: record.InPool, Scope: plan.ScopeEveryNode, Retained: true}}
	for _, scope := range []string{plan.ScopeNode, plan.ScopeShared, plan.ScopeEveryNode} {
		if c := CensusOf(ofOne, plan.Pool{Scope: scope}, "node-a", nil); c.Closes() {
			t.Errorf("scope %s: closed by %+v", scope, c)
		}
	}
}

// Each rule can be called alone, with facts that say nothing.
func TestEveryRuleIsTotal(t *testing.T) {
	for i, rule := range rules {
		if finding, _ := rule(Facts{}); finding.Reason == "" || finding.Message == "" {
			t.Errorf("rule %d has no reason or no message: %+v", i, finding)
		}
	}
}
