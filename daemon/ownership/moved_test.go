package ownership

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
)

// A pool that was mounted elsewhere, and configured so, is closed before it opens once; one whose objects agree is not read.
func TestPathChanged(t *testing.T) {
	object := func(name, path string, labels map[string]string) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{}
		v.Name, v.Labels = name, labels
		v.Spec.Local = &corev1.LocalVolumeSource{Path: path}
		return v
	}
	here, other := map[string]string{plan.PoolLabel: "fast"}, map[string]string{plan.PoolLabel: "slow"}
	each := map[string]string{plan.PoolLabel: "fast", plan.ScopeLabel: plan.ScopeEveryNode}
	rec := func(name string, place record.Place) record.Record {
		return record.Record{PV: name, Directory: name, Node: "node-a", Scope: plan.ScopeNode, Place: place}
	}
	recorded := []record.Record{rec("a", record.InPool), rec("b", record.InPool), rec("gone", record.InTrash)}
	for name, c := range map[string]struct {
		watched []*corev1.PersistentVolume
		reasons string
		reads   int
	}{
		"all here":         {[]*corev1.PersistentVolume{object("a", "/srv/fast/a", here), object("b", "/srv/fast/b", here)}, "", 0},
		"all moved":        {[]*corev1.PersistentVolume{object("a", "/mnt/a", here), object("b", "/mnt/b", here)}, plan.ReasonPathChanged, 1},
		"below":            {[]*corev1.PersistentVolume{object("a", "/srv/fast/deep/a", here)}, plan.ReasonPathChanged, 1},
		"half":             {[]*corev1.PersistentVolume{object("a", "/srv/fast/a", here), object("b", "/mnt/b", here)}, "", 1},
		"by hand":          {[]*corev1.PersistentVolume{object("none", "/mnt/none", here)}, "", 1},
		"another's":        {[]*corev1.PersistentVolume{object("a", "/etc", here), object("b", "/srv/fast/b", here)}, "", 1},
		"in the trash":     {[]*corev1.PersistentVolume{object("gone", "/mnt/gone", here)}, "", 1},
		"of another pool":  {[]*corev1.PersistentVolume{object("c", "/srv/slow/c", other)}, "", 0},
		"on each node":     {[]*corev1.PersistentVolume{object("a", "/mnt/a", each)}, "", 0},
		"without any path": {[]*corev1.PersistentVolume{{ObjectMeta: object("a", "", here).ObjectMeta}}, "", 0},
	} {
		s := &storage{records: recorded}
		e := newEnvironment(plan.ScopeNode, &api{}, s)
		e.watched = c.watched
		if _, reasons := e.check(t.Context(), complete); reasons != c.reasons || s.reads != c.reads {
			t.Errorf("%s: findings %q, %d times read; want %q, %d", name, reasons, s.reads, c.reasons, c.reads)
		}
		if closes := e.Count(recorded, complete); closes != (c.reasons != "") {
			t.Errorf("%s: the records that were read keep it closed: %t", name, closes)
		}
	}
}
