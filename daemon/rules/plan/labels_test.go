package plan

import (
	"path"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// The object of a recorded volume that no daemon of this node watches is told, and nothing else
// changes for it.
func TestLabelsMissing(t *testing.T) {
	type volume = corev1.PersistentVolume
	here, none := NodeLabel+"="+us, func(*volume) {}
	label := func(node string) func(*volume) {
		return func(v *volume) { v.Labels = map[string]string{NodeLabel: node, PoolLabel: "fast"} }
	}
	for name, c := range map[string]struct {
		f      RecordFacts
		change func(*volume) // of an object without labels
		told   string        // label
	}{
		"none":                    {RecordFacts{}, none, here},
		"none, and retained":      {RecordFacts{Record: record.Record{Retained: true}}, none, here},
		"nor who made it":         {RecordFacts{}, func(v *volume) { v.Annotations = nil }, here},
		"another node's":          {RecordFacts{}, label(them), here},
		"no claim, its directory": {RecordFacts{}, func(v *volume) { v.Spec.ClaimRef = nil }, here},
		"its claim, another path": {RecordFacts{}, func(v *volume) { v.Spec.HostPath.Path = "/moved" }, here},
		"of scope every-node":     {RecordFacts{Scope: ScopeEveryNode}, none, ScopeLabel + "=every-node"},
		"its own":                 {RecordFacts{}, label(us), ""},
		"inherited":               {RecordFacts{Scope: ScopeShared}, label(them), ""},
		"another's claim and path": {RecordFacts{}, func(v *volume) {
			v.Spec.ClaimRef.UID, v.Spec.HostPath.Path = "u-2", "/moved"
		}, ""},
		"another provisioner's": {RecordFacts{}, func(v *volume) {
			v.Annotations = map[string]string{ProvisionedBy: "another"}
		}, ""},
		"of a driver, being adopted": {RecordFacts{Record: record.Record{Replaced: "{}"}}, none, ""},
		"of another node by affinity": {RecordFacts{Record: record.Record{Node: us}}, func(v *volume) {
			label(them)(v)
			term := &v.Spec.NodeAffinity.Required.NodeSelectorTerms[0]
			term.MatchExpressions[0].Values = []string{"host-of-them"}
		}, ""},
		"made by another node": {RecordFacts{Record: record.Record{Node: them}}, none, ""},
	} {
		c.f.Record.Place, c.f.Record.ClaimUID, c.f.Record.PV = record.InPool, "u-1", "pvc-u-1"
		c.f.Record.Directory = path.Base(PathOf(NewVolume(ready(), "pvc-u-1")))
		c.f.Volume = NewVolume(ready(), "pvc-u-1")
		c.f.Volume.Labels = nil
		c.change(c.f.Volume)
		c.f.Node, c.f.Provisioner, c.f.NodeLabels = us, DefaultProvisioner, ready().NodeLabels
		got := ForRecord(c.f)
		told := got.Reason == ReasonLabelsMissing && got.Action == Keep
		if told != (c.told != "") || !strings.Contains(got.Message, c.told) {
			t.Errorf("%s: %s %s %q", name, got.Action, got.Reason, got.Message)
		}
	}
}

// The object of a recorded volume that names no provisioner is told, in each phase, and nothing is
// done with it.
func TestProvisionerMissing(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*VolumeFacts)
		told   bool
	}{
		"released":         {func(*VolumeFacts) {}, true},
		"failed":           {phase(corev1.VolumeFailed), true},
		"bound":            {phase(corev1.VolumeBound), true},
		"being deleted":    {deleting, true},
		"without a record": {unrecorded, false},
		"another node's": {func(f *VolumeFacts) {
			f.Volume.Labels[NodeLabel] = them
		}, false},
		"another path":  {pointTo("/srv/fast/other"), false},
		"another claim": {func(f *VolumeFacts) { f.Record.ClaimUID = "u-2" }, false},
		"another provisioner's": {func(f *VolumeFacts) {
			f.Volume.Annotations[ProvisionedBy] = "other"
		}, false},
		"no daemon speaks of it": {func(f *VolumeFacts) { f.Silent = true }, false},
	} {
		f := released()
		f.Record.ClaimUID = string(f.Volume.Spec.ClaimRef.UID)
		delete(f.Volume.Annotations, ProvisionedBy)
		c.change(&f)
		got := ForVolume(f)
		if told := got.Action == Refuse && got.Reason == ReasonLabelsMissing; told != c.told ||
			!told && got.Action != Ignore {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Volumes of this node are told when pods look for their data in another directory.
func TestOffItsPath(t *testing.T) {
	type volume = corev1.PersistentVolume
	const elsewhere = "/mnt/pvc-u-1"
	moved := func(v *volume) { v.Spec.HostPath.Path = elsewhere }
	released := func(v *volume) { v.Status.Phase = corev1.VolumeReleased }
	theirs := func(v *volume) { v.Labels[NodeLabel] = them }
	foreign := func(v *volume) { v.Annotations[ProvisionedBy] = "x" }
	both := func(a, b func(*volume)) func(*volume) { return func(v *volume) { a(v); b(v) } }
	for name, c := range map[string]struct {
		change func(*volume)
		place  record.Place
		told   bool
	}{
		"the same":           {func(*volume) {}, record.InPool, false},
		"another":            {moved, record.InPool, true},
		"another, gone":      {moved, record.InTrash, false},
		"another, released":  {both(moved, released), record.InPool, false},
		"of another node":    {both(moved, theirs), record.InPool, false},
		"of another program": {both(moved, foreign), record.InPool, false},
	} {
		v := NewVolume(ready(), "pvc-u-1")
		v.Status.Phase = corev1.VolumeBound
		c.change(v)
		r := record.Record{Directory: "pvc-u-1", Place: c.place}
		got, told := self.OffItsPath(v, testPool("fast"), r)
		says := got.Reason == ReasonPathMismatch && strings.Contains(got.Message, elsewhere)
		if told != c.told || told != says {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Volumes of this node are told when its labels are not those of their affinity.
func TestNodeRelabelled(t *testing.T) {
	type volume = corev1.PersistentVolume
	none := map[string]string{}
	for name, c := range map[string]struct {
		change func(*volume)
		labels map[string]string
		told   bool
	}{
		"the same":         {nil, ready().NodeLabels, false},
		"another":          {nil, map[string]string{HostnameLabel: "renamed"}, true},
		"none":             {nil, none, true},
		"not known":        {nil, nil, false},
		"of another node":  {func(v *volume) { v.Labels[NodeLabel] = them }, none, false},
		"of no affinity":   {func(v *volume) { v.Spec.NodeAffinity = nil }, none, false},
		"of a shared pool": {func(v *volume) { v.Labels[ScopeLabel] = ScopeShared }, none, false},
	} {
		v := NewVolume(ready(), "pvc-u-1")
		if c.change != nil {
			c.change(v)
		}
		if got, told := self.OffItsNode(v, c.labels); told != c.told || told != (got.Reason == ReasonNodeRelabelled) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
