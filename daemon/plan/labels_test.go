package plan

import (
	"path"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
)

// The object of a recorded volume that no daemon of this node watches is told, and nothing else changes for it.
func TestLabelsMissing(t *testing.T) {
	labels := ready().NodeLabels
	object := func(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		v := NewVolume(ready(), "pvc-u-1")
		v.Labels = nil
		change(v)
		return v
	}
	named := func(node string) map[string]string { return map[string]string{NodeLabel: node, PoolLabel: "fast"} }
	for name, c := range map[string]struct {
		f    RecordFacts
		v    *corev1.PersistentVolume
		told string // label
	}{
		"none":                     {RecordFacts{}, object(func(*corev1.PersistentVolume) {}), NodeLabel + "=" + us},
		"none, and retained":       {RecordFacts{Record: record.Record{Retained: true}}, object(func(*corev1.PersistentVolume) {}), NodeLabel + "=" + us},
		"nor who made it":          {RecordFacts{}, object(func(v *corev1.PersistentVolume) { v.Annotations = nil }), NodeLabel + "=" + us},
		"another node's":           {RecordFacts{}, object(func(v *corev1.PersistentVolume) { v.Labels = named(them) }), NodeLabel + "=" + us},
		"no claim, its directory":  {RecordFacts{}, object(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil }), NodeLabel + "=" + us},
		"its claim, another path":  {RecordFacts{}, object(func(v *corev1.PersistentVolume) { v.Spec.HostPath.Path = "/moved" }), NodeLabel + "=" + us},
		"of scope every-node":      {RecordFacts{Scope: ScopeEveryNode}, object(func(*corev1.PersistentVolume) {}), ScopeLabel + "=" + ScopeEveryNode},
		"its own":                  {RecordFacts{}, object(func(v *corev1.PersistentVolume) { v.Labels = named(us) }), ""},
		"inherited":                {RecordFacts{Scope: ScopeShared}, object(func(v *corev1.PersistentVolume) { v.Labels = named(them) }), ""},
		"another's claim and path": {RecordFacts{}, object(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID, v.Spec.HostPath.Path = "u-2", "/moved" }), ""},
		"another provisioner's": {RecordFacts{}, object(func(v *corev1.PersistentVolume) {
			v.Annotations = map[string]string{ProvisionedBy: "another"}
		}), ""},
		"of a driver, being adopted": {RecordFacts{Record: record.Record{Replaced: "{}"}}, object(func(*corev1.PersistentVolume) {}), ""},
		"of another node by its affinity": {RecordFacts{Record: record.Record{Node: us}, NodeLabels: labels}, object(func(v *corev1.PersistentVolume) {
			v.Labels = named(them)
			v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"host-of-them"}
		}), ""},
		"made by another node": {RecordFacts{Record: record.Record{Node: them}}, object(func(*corev1.PersistentVolume) {}), ""},
	} {
		c.f.Record.Place, c.f.Record.ClaimUID, c.f.Record.PV = record.InPool, "u-1", "pvc-u-1"
		c.f.Record.Directory = path.Base(PathOf(NewVolume(ready(), "pvc-u-1")))
		c.f.Node, c.f.Provisioner, c.f.Volume = us, DefaultProvisioner, c.v
		got := ForRecord(c.f)
		if told := got.Reason == ReasonLabelsMissing; told != (c.told != "") || !strings.Contains(got.Message, c.told) || told && got.Action != Keep {
			t.Errorf("%s: %s %s %q", name, got.Action, got.Reason, got.Message)
		}
	}
}
