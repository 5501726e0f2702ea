package follow

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

func recorded(change ...func(*AnewFacts)) AnewFacts {
	f := AnewFacts{
		Self: plan.Self{Provisioner: "ours", Node: "node-b"}, Claims: true,
		Pool: plan.Pool{Name: "fast", Path: "/srv/fast"},
		Record: record.Record{PV: "pvc-1", Namespace: "ns", Claim: "c", ClaimUID: "1", Class: "old",
			Provisioner: "ours", Directory: "dir", Requested: 1 << 20, Place: record.InPool},
	}
	for _, one := range change {
		one(&f)
	}
	return f
}

func claimed(uid types.UID, volume string) func(*AnewFacts) {
	return func(f *AnewFacts) {
		f.Claim = &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: uid},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: volume},
		}
	}
}

// Only what is recorded and has no object gets one, and none that a claim would have to share.
func TestForAnewInOrder(t *testing.T) {
	object := func(f *AnewFacts) { f.Volume = FromRecord(*f, nil, "host-b") }
	unasked := func(f *AnewFacts) { f.Claims = false }
	begun := func(f *AnewFacts) { f.Intent = &Intent{} }
	for name, c := range map[string]struct {
		f    AnewFacts
		want plan.Action
	}{
		"recorded":              {recorded(), Make},
		"begun":                 {recorded(begun), Finish},
		"begun, and there":      {recorded(object, begun), Finish},
		"its own claim":         {recorded(claimed("2", "pvc-1")), Make},
		"its claim, restored":   {recorded(claimed("1", "")), Make},
		"its claim, with other": {recorded(claimed("1", "pvc-2")), plan.Refuse},
		"another claim":         {recorded(claimed("2", "")), plan.Refuse},
		"another claim's":       {recorded(claimed("2", "pvc-2")), plan.Refuse},
		"waits for its claim":   {recorded(object), Claim},
		"the claim came":        {recorded(object, claimed("2", "")), plan.Ignore},
		"without --claims":      {recorded(object, unasked), plan.Ignore},
		"there, and bound": {recorded(object, func(f *AnewFacts) {
			f.Volume.Spec.ClaimRef.UID = "1"
		}), plan.Ignore},
		"another node's object": {recorded(object, func(f *AnewFacts) {
			f.Volume.Labels[plan.NodeLabel] = "node-c"
		}), plan.Ignore},
		"a snapshot": {recorded(func(f *AnewFacts) { f.Record.Kind = record.Snapshot }),
			plan.Ignore},
		"half made": {recorded(func(f *AnewFacts) { f.Record.Unpublished = true }), plan.Ignore},
		"retained":  {recorded(func(f *AnewFacts) { f.Record.Retained = true }), plan.Keep},
		"removed": {recorded(func(f *AnewFacts) { f.Record.Place = record.InTrash }),
			plan.Keep},
		"replaced": {recorded(func(f *AnewFacts) { f.Record.Replaced = "{}" }), plan.Refuse},
		"not served": {recorded(func(f *AnewFacts) { f.Record.Provisioner = "x" }),
			plan.Refuse},
		"broken": {recorded(func(f *AnewFacts) { f.Broken = "x" }), plan.Refuse},
	} {
		v := ForAnew(c.f)
		told := c.want == plan.Keep || c.want == plan.Refuse
		if v.Action != c.want || (v.Message != "") != told {
			t.Errorf("%s: %+v, want %s", name, v, c.want)
		}
	}
}

// The object and the claim agree, so that Kubernetes binds them; an object for a claim that is
// there has what that requests.
func TestFromRecord(t *testing.T) {
	v := FromRecord(recorded(), map[string]string{"old": "new"}, "host-b")
	c, ref := claimFor(v), v.Spec.ClaimRef
	switch {
	case c.Spec.VolumeName != v.Name || ref.Name != c.Name || ref.Namespace != c.Namespace:
		t.Errorf("%+v is not for %+v", v, c)
	case *c.Spec.StorageClassName != "new" || v.Spec.StorageClassName != "new" || ref.UID != "":
		t.Errorf("%+v, %+v", v, c)
	case v.Spec.HostPath.Path != "/srv/fast/dir" || v.Labels[plan.NodeLabel] != "node-b":
		t.Errorf("%+v", v)
	}
	of := recorded(claimed("2", "pvc-1"))
	class := "other"
	of.Claim.Spec.StorageClassName = &class
	of.Claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	v = FromRecord(of, map[string]string{"old": "new"}, "host-b")
	if v.Spec.ClaimRef.UID != "2" || v.Spec.StorageClassName != class ||
		v.Spec.AccessModes[0] != corev1.ReadWriteOncePod {
		t.Errorf("%+v", v)
	}
}
