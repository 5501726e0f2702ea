package follow

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

func volumeOf(node string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	directory := corev1.HostPathDirectory
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
		Name: "pvc-1", UID: "old", ResourceVersion: "7",
		Labels:      map[string]string{plan.NodeLabel: node, plan.PoolLabel: "old"},
		Annotations: map[string]string{plan.ProvisionedBy: "ours"},
		Finalizers:  []string{plan.Finalizer, plan.PVProtection},
	}}
	v.Spec.ClaimRef = &corev1.ObjectReference{Name: "c", UID: "1", ResourceVersion: "3"}
	v.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/srv/old/dir", Type: &directory}
	v.Spec.NodeAffinity = plan.NodeAffinity("host-a")
	for _, f := range change {
		f(v)
	}
	return v
}

func factsOf(v *corev1.PersistentVolume, change ...func(*Facts)) Facts {
	f := Facts{
		Self: plan.Self{Provisioner: "ours", Node: "node-b"}, From: "node-a", Hostname: "host-b",
		Pool: plan.Pool{Name: "fast", Path: "/srv/fast"}, Volume: v,
		Record: &record.Record{PV: "pvc-1", Directory: "dir", Node: "node-a"},
	}
	for _, one := range change {
		one(&f)
	}
	return f
}

// Only what the disk proves, and no pod there uses, is moved; what a call has begun is finished.
func TestForInOrder(t *testing.T) {
	begun := func(f *Facts) { f.Intent = &Intent{UID: "old"} }
	unrecorded := func(f *Facts) { f.Record = nil }
	used := func(f *Facts) { f.User = "ns/pod" }
	held := func(v *corev1.PersistentVolume) { v.Finalizers = append(v.Finalizers, "x/y") }
	strange := func(v *corev1.PersistentVolume) { v.Annotations[plan.ProvisionedBy] = "other" }
	damaged := func(f *Facts) { f.Unreadable = "x" }
	third := func(v *corev1.PersistentVolume) { v.Labels[plan.NodeLabel] = "node-c" }
	same := func(f *Facts) { f.From = "node-b" }
	present := func(f *Facts) {
		f.From, f.Record.Node = "node-b", "node-b"
		f.Volume = Successor(*f)
	}
	going := func(v *corev1.PersistentVolume) {
		v.Status.Phase = corev1.VolumeReleased
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	}
	archived := func(f *Facts) { f.Record, f.Archived = nil, true }
	elsewhere := func(v *corev1.PersistentVolume) { v.Spec.HostPath.Path = "/etc" }
	for name, c := range map[string]struct {
		f    Facts
		want plan.Action
	}{
		"theirs":                    {factsOf(volumeOf("node-a")), Move},
		"theirs, and begun":         {factsOf(volumeOf("node-a"), begun), Move},
		"no object":                 {factsOf(nil), plan.Ignore},
		"no object, and begun":      {factsOf(nil, begun), Finish},
		"here":                      {factsOf(volumeOf("node-b")), plan.Ignore},
		"here, and begun":           {factsOf(volumeOf("node-b"), begun), Finish},
		"the same node, outdated":   {factsOf(volumeOf("node-b"), same), Move},
		"the same, begun, outdated": {factsOf(volumeOf("node-b"), same, begun), Move},
		"the same node, as it is":   {factsOf(volumeOf("node-b"), present), plan.Ignore},
		"the same, begun":           {factsOf(volumeOf("node-b"), present, begun), Finish},
		"the same, outdated, used":  {factsOf(volumeOf("node-b"), same, used), plan.Refuse},
		"the same, unrecorded":      {factsOf(volumeOf("node-b"), same, unrecorded), plan.Ignore},
		"here, and used there":      {factsOf(volumeOf("node-b"), used), plan.Ignore},
		"of a third node":           {factsOf(volumeOf("node-c")), plan.Keep},
		"of a third, begun":         {factsOf(volumeOf("node-c"), begun), plan.Keep},
		"of a third, not recorded":  {factsOf(volumeOf("node-c"), unrecorded), plan.Ignore},
		"not recorded":              {factsOf(volumeOf("node-a"), unrecorded), plan.Keep},
		"archived, and going":       {factsOf(volumeOf("node-a", going), archived), Drop},
		"archived, and bound":       {factsOf(volumeOf("node-a"), archived), plan.Keep},
		"archived, and held": {factsOf(volumeOf("node-a", going, held), archived),
			plan.Keep},
		"archived, of another": {factsOf(volumeOf("node-a", going, strange), archived),
			plan.Keep},
		"archived, and of a third":     {factsOf(volumeOf("node-c", going), archived), plan.Ignore},
		"of another provisioner":       {factsOf(volumeOf("node-a", strange)), plan.Refuse},
		"of a third, not served":       {factsOf(volumeOf("node-a", third, strange)), plan.Keep},
		"points elsewhere":             {factsOf(volumeOf("node-a", elsewhere)), plan.Refuse},
		"used there":                   {factsOf(volumeOf("node-a"), used), plan.Refuse},
		"held by another program":      {factsOf(volumeOf("node-a", held)), plan.Refuse},
		"its record cannot be read":    {factsOf(volumeOf("node-a"), damaged), plan.Refuse},
		"neither, nor is it ours here": {factsOf(volumeOf("node-c"), damaged), plan.Keep},
	} {
		v := For(c.f)
		told := c.want == plan.Keep || c.want == plan.Refuse
		if v.Action != c.want || (v.Message != "") != told {
			t.Errorf("%s: %+v, want %s", name, v, c.want)
		}
	}
}

// The object that is made has all that the other one had but what names the node, the pool and its
// path.
func TestSuccessor(t *testing.T) {
	at := "/srv/fast/dir"
	for name, c := range map[string]struct {
		change func(*corev1.PersistentVolume)
		want   func(*corev1.PersistentVolume)
	}{
		"hostPath": {func(*corev1.PersistentVolume) {},
			func(v *corev1.PersistentVolume) { v.Spec.HostPath.Path = at }},
		"without the finalizer": {
			func(v *corev1.PersistentVolume) { v.Finalizers = v.Finalizers[1:] },
			func(v *corev1.PersistentVolume) {
				v.Finalizers, v.Spec.HostPath.Path = []string{}, at
			}},
		"local": {func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
				Local: &corev1.LocalVolumeSource{Path: "/srv/old/dir"}}
		}, func(v *corev1.PersistentVolume) { v.Spec.Local.Path = at }},
		"csi": {func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: "ours", VolumeHandle: "pvc-1",
					VolumeAttributes: map[string]string{
						"pool": "old", "path": "/srv/old/dir", "x": "y"}}}
		}, func(v *corev1.PersistentVolume) {
			v.Spec.CSI.VolumeAttributes = map[string]string{"pool": "fast", "path": at, "x": "y"}
		}},
		"another system's, without affinity": {func(v *corev1.PersistentVolume) {
			v.Annotations[plan.ProvisionOnNode], v.Spec.NodeAffinity = "node-a", nil
		}, func(v *corev1.PersistentVolume) {
			v.Annotations[plan.ProvisionOnNode], v.Spec.HostPath.Path = "node-b", at
		}},
	} {
		v := volumeOf("node-a", c.change)
		before := v.DeepCopy()
		got, want := Successor(factsOf(v)), v.DeepCopy()
		want.UID, want.ResourceVersion, want.Spec.ClaimRef.ResourceVersion = "", "", ""
		want.Labels = map[string]string{plan.NodeLabel: "node-b", plan.PoolLabel: "fast"}
		want.Finalizers = []string{plan.Finalizer}
		if want.Spec.NodeAffinity != nil {
			want.Spec.NodeAffinity = plan.NodeAffinity("host-b")
		}
		c.want(want)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%+v\nwant\n%+v", name, got, want)
		}
		if !reflect.DeepEqual(v, before) {
			t.Errorf("%s: the object itself was changed", name)
		}
		if why := Differs(got, want); why != "" {
			t.Errorf("%s: it differs from itself: %s", name, why)
		}
	}
	if Differs(volumeOf("node-a"), volumeOf("node-b")) == "" {
		t.Error("another node's object is taken for this one's")
	}
}

// An intent survives its record.
func TestIntent(t *testing.T) {
	want := Intent{UID: "old", Deleting: true, Claimed: true,
		Object: Successor(factsOf(volumeOf("node-a")))}
	text, err := want.encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decode(text); err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := decode(""); got != nil || err != nil {
		t.Errorf("no intent: %+v, %v", got, err)
	}
	for _, bad := range []string{"{}", "x"} {
		if _, err := decode(bad); err == nil {
			t.Errorf("%q is an intent", bad)
		}
	}
}
