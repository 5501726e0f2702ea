package ownership

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// A pool that was mounted elsewhere, and configured so, is closed before it opens once; one whose
// objects agree is not read.
func TestPathChanged(t *testing.T) {
	object := func(name, path string, labels map[string]string) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{}
		v.Name, v.Labels = name, labels
		v.Spec.Local = &corev1.LocalVolumeSource{Path: path}
		return v
	}
	type objects = []*corev1.PersistentVolume
	here, other := map[string]string{plan.PoolLabel: "fast"}, map[string]string{plan.PoolLabel: "slow"}
	a, b := object("a", "/srv/fast/a", here), object("b", "/srv/fast/b", here)
	each := map[string]string{plan.PoolLabel: "fast", plan.ScopeLabel: plan.ScopeEveryNode}
	rec := func(name string, place record.Place) record.Record {
		r := ours
		r.PV, r.Directory, r.Place = name, name, place
		return r
	}
	recorded := []record.Record{
		rec("a", record.InPool), rec("b", record.InPool), rec("gone", record.InTrash),
	}
	for name, c := range map[string]struct {
		watched []*corev1.PersistentVolume
		reasons string
		reads   int
	}{
		"all here": {objects{a, b}, "", 0},
		"all moved": {objects{object("a", "/mnt/a", here), object("b", "/mnt/b", here)},
			plan.ReasonPathChanged, 1},
		"below":                   {objects{object("a", "/srv/fast/deep/a", here)}, plan.ReasonPathChanged, 1},
		"half":                    {objects{a, object("b", "/mnt/b", here)}, "", 1},
		"begun here, made beside": {objects{object("a", "/srv/slow/a", other)}, "", 0},
		"by hand":                 {objects{object("none", "/mnt/none", here)}, "", 1},
		"another's":               {objects{object("a", "/etc", here), b}, "", 1},
		"in the trash":            {objects{object("gone", "/mnt/gone", here)}, "", 1},
		"of another pool":         {objects{object("c", "/srv/slow/c", other)}, "", 0},
		"on each node":            {objects{object("a", "/mnt/a", each)}, "", 0},
		"without any path":        {objects{{ObjectMeta: object("a", "", here).ObjectMeta}}, "", 0},
	} {
		s := &storage{records: recorded}
		e := newEnvironment(plan.ScopeNode, &api{}, s)
		e.watched = c.watched
		_, reasons := e.check(t.Context(), complete)
		if reasons != c.reasons || s.reads != c.reads {
			t.Errorf("%s: findings %q, %d times read; want %d", name, reasons, s.reads, c.reads)
		}
		if closes := e.Count(recorded, complete); closes != (c.reasons != "") {
			t.Errorf("%s: the records that were read keep it closed: %t", name, closes)
		}
	}
}
