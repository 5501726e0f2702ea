package adoptrules

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// ofDriver is the object of a CSI driver as the API server returns it.
func ofDriver() *corev1.PersistentVolume {
	now := metav1.Now()
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-1", UID: "uid-of-object", ResourceVersion: "77", Generation: 3, CreationTimestamp: now, DeletionTimestamp: &now,
			Labels: map[string]string{"team": "shop"}, Annotations: map[string]string{plan.ProvisionedBy: plan.KubevirtCSI, "note": "kept"},
			Finalizers: []string{plan.PVProtection, "external-provisioner.volume.kubernetes.io/finalizer"},
		},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, MountOptions: []string{"noatime"},
			ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: "data", UID: "u-1", ResourceVersion: "12"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: plan.KubevirtCSI, VolumeHandle: "pvc-1"}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
}

// While a call replaces the object, no provisioner has a reason to remove the data, and whatever
// moment the call is cut off in, the policy of before is known: held twice, it is not taken for
// Retain.
func TestHoldAndRelease(t *testing.T) {
	for _, policy := range []corev1.PersistentVolumeReclaimPolicy{corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain} {
		t.Run(string(policy), func(t *testing.T) {
			pool, v := testPool("fast"), ofDriver()
			v.Spec.PersistentVolumeReclaimPolicy = policy
			before := v.DeepCopy()
			if Held(v, pool, us) {
				t.Error("held before it was")
			}
			for range 2 {
				patch := HoldPatch(v, pool, us)
				apply(v, patch)
				v.Spec.PersistentVolumeReclaimPolicy = patch.Reclaim
				if patch.Reclaim != corev1.PersistentVolumeReclaimRetain || OwnPolicy(v) != policy || OfHost(v, pool).Spec.PersistentVolumeReclaimPolicy != policy {
					t.Errorf("held with %s, its own %s", patch.Reclaim, OwnPolicy(v))
				}
			}
			if !Held(v, pool, us) || Held(v, pool, them) {
				t.Errorf("held by %s: %t, by %s: %t", us, Held(v, pool, us), them, Held(v, pool, them))
			}
			if was := Original(v); !reflect.DeepEqual(was.Annotations, before.Annotations) || was.Spec.PersistentVolumeReclaimPolicy != policy {
				t.Errorf("original with %s and %v", was.Spec.PersistentVolumeReclaimPolicy, was.Annotations)
			}
			patch := ReleasePatch(v)
			apply(v, patch)
			v.Spec.PersistentVolumeReclaimPolicy = patch.Reclaim
			if !reflect.DeepEqual(v, before) {
				t.Errorf("released\n%+v\nwant\n%+v", v, before)
			}
		})
	}
}

// The annotation comes from the API, where others can write to it too: only Delete is taken, and
// any other value leaves the policy that the object has.
func TestOwnPolicyOfAnyWord(t *testing.T) {
	for annotation, want := range map[string]corev1.PersistentVolumeReclaimPolicy{
		"": corev1.PersistentVolumeReclaimRetain, "Delete": corev1.PersistentVolumeReclaimDelete, "delete": corev1.PersistentVolumeReclaimRetain,
		"Recycle": corev1.PersistentVolumeReclaimRetain, "Retain": corev1.PersistentVolumeReclaimRetain,
	} {
		v := ofDriver()
		v.Spec.PersistentVolumeReclaimPolicy, v.Annotations[plan.HeldAnnotation] = corev1.PersistentVolumeReclaimRetain, annotation
		if got := OwnPolicy(v); got != want {
			t.Errorf("%q: %s, want %s", annotation, got, want)
		}
	}
}

// An original can be created: the API server refuses a resource version, and takes no status with a
// new object.
func TestOriginalCanBeMade(t *testing.T) {
	v := ofDriver()
	was := Original(v)
	want := metav1.ObjectMeta{Name: v.Name, Labels: v.Labels, Annotations: v.Annotations, Finalizers: v.Finalizers}
	if !reflect.DeepEqual(was.ObjectMeta, want) || !reflect.DeepEqual(was.Status, corev1.PersistentVolumeStatus{}) {
		t.Errorf("%+v\n%+v", was.ObjectMeta, was.Status)
	}
	if !OfDriver(was, plan.KubevirtCSI) || OfDriver(was, "") || OfDriver(was, "other.csi") || OfDriver(OfHost(v, testPool("fast")), plan.KubevirtCSI) {
		t.Error("the driver of an object is the one in its source")
	}
}

// What takes the place of a driver's object is for the same claim, and has what the cluster's users
// wrote on it; nothing of the driver or of the call is left that would have another program work on
// it.
func TestSuccessor(t *testing.T) {
	pool, v := testPool("fast"), ofDriver()
	apply(v, HoldPatch(v, pool, us))
	seen := OfHost(v, pool)
	before := seen.DeepCopy()
	next := Successor(seen, pool, us, "host-a", sized("1Mi"))
	if !reflect.DeepEqual(seen, before) {
		t.Error("what the rules saw was changed")
	}
	if ref := next.Spec.ClaimRef; ref == nil || ref.UID != "u-1" || ref.ResourceVersion != "" {
		t.Errorf("claim %+v", ref)
	}
	if next.Spec.CSI != nil || next.Spec.HostPath == nil || next.Spec.HostPath.Path != "/srv/fast/pvc-1" || *next.Spec.HostPath.Type != corev1.HostPathDirectory {
		t.Errorf("source %+v", next.Spec.PersistentVolumeSource)
	}
	if next.Labels["team"] != "shop" || !labelledFor(next, pool, us) || labelledFor(next, pool, them) {
		t.Errorf("labels %v", next.Labels)
	}
	want := map[string]string{plan.ProvisionedBy: plan.KubevirtCSI, "note": "kept", plan.AdoptedAnnotation: AdoptedFromCSI}
	if !maps.Equal(next.Annotations, want) || !slices.Equal(next.Finalizers, []string{plan.Finalizer}) || next.DeletionTimestamp != nil || next.UID != "" {
		t.Errorf("%+v", next.ObjectMeta)
	}
	if !reflect.DeepEqual(next.Spec.NodeAffinity, plan.NodeAffinity("host-a")) || next.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		t.Errorf("affinity %+v, %s", next.Spec.NodeAffinity, next.Spec.PersistentVolumeReclaimPolicy)
	}
	if next.Spec.MountOptions != nil {
		t.Errorf("a hostPath volume with mount options %q, which the API server refuses", next.Spec.MountOptions)
	}
	pool.Source = plan.SourceLocal
	if local := Successor(seen, pool, us, "host-a",
		sized("1Mi")); !slices.Equal(local.Spec.MountOptions, []string{"noatime"}) {
		t.Errorf("a local volume with mount options %q", local.Spec.MountOptions)
	}
}

// An undo makes the driver's object as it was, but what users changed since stays changed.
func TestPredecessor(t *testing.T) {
	original, pool := Original(ofDriver()), testPool("fast")
	if back := Predecessor(original, nil); back.Spec.ClaimRef.ResourceVersion != "" || back.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		t.Errorf("without ours: %+v", back.Spec)
	}
	ours := Successor(OfHost(original, pool), pool, us, "host-a", sized("1Mi"))
	if has := ours.Spec.Capacity.Storage(); has.String() != "1Mi" {
		t.Errorf("ours has %s", has)
	}
	ours.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	ours.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "other", UID: "u-2", ResourceVersion: "99"}
	back := Predecessor(original, ours)
	if ref := back.Spec.ClaimRef; ref.UID != "u-2" || ref.ResourceVersion != "" || ours.Spec.ClaimRef.ResourceVersion != "99" {
		t.Errorf("claim %+v, and ours %+v", ref, ours.Spec.ClaimRef)
	}
	if !OfDriver(back, plan.KubevirtCSI) || back.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || !slices.Equal(back.Finalizers, original.Finalizers) {
		t.Errorf("%+v", back)
	}
}

// The capacity is the driver's again, unless the claim was expanded beyond it.
func TestPredecessorCapacity(t *testing.T) {
	original, pool := Original(ofDriver()), testPool("fast")
	original.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: sized("2Gi")}
	for has, want := range map[string]string{"1Mi": "2Gi", "2Gi": "2Gi", "3Gi": "3Gi"} {
		ours := Successor(OfHost(original, pool), pool, us, "host-a", sized(has))
		if back := Predecessor(original, ours).Spec.Capacity.Storage(); back.String() != want {
			t.Errorf("with %s it is %s", has, back)
		}
	}
	if next := Successor(OfHost(original, pool), pool, us, "host-a",
		sized("0")); next.Spec.Capacity.Storage().String() != "2Gi" ||
		next.Annotations[plan.SizeAnnotation] != "0 of 2Gi" {
		t.Errorf("%+v", next)
	}
}

func sized(size string) resource.Quantity { return resource.MustParse(size) }

// What the pool keeps for a volume is what its claim requests, and never more than its capacity.
func TestSize(t *testing.T) {
	for _, c := range []struct{ by, capacity, claim, want string }{
		{plan.Kubevirt, "2Gi", "1Mi", "1Mi"}, {plan.KubevirtCSI, "2Gi", "1Mi", "1Mi"},
		{plan.Rancher, "2Gi", "1Mi", "1Mi"},
		{plan.Kubevirt, "2Gi", "2Gi", "2Gi"}, {plan.Kubevirt, "2Gi", "3Gi", "2Gi"}, {plan.Kubevirt,
			"2Gi", "1e30", "2Gi"},
		{plan.Kubevirt, "2Gi", "", "0"}, {plan.KubevirtCSI, "2Gi", "", "0"}, {plan.Rancher, "2Gi",
			"", "2Gi"},
	} {
		v := ofDriver()
		v.Annotations[plan.ProvisionedBy] = c.by
		v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: sized(c.capacity)}
		var claim *corev1.PersistentVolumeClaim
		if c.claim != "" {
			claim = &corev1.PersistentVolumeClaim{}
			claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: sized(
				c.claim)}
		}
		if got := Size(v, claim); got.String() != c.want {
			t.Errorf("%+v: %s", c, got.String())
		}
	}
}

// Only an object that is this node's, of this directory, recorded as a replacement and for a claim
// is taken for ours.
func TestSucceeds(t *testing.T) {
	pool := testPool("fast")
	for _, c := range []struct {
		name   string
		change func(*corev1.PersistentVolume, *record.Record)
		want   bool
	}{
		{"as it was made", func(*corev1.PersistentVolume, *record.Record) {}, true},
		{"record of an adoption without a replacement", func(_ *corev1.PersistentVolume, r *record.Record) { r.Replaced = "" }, false},
		{"another directory", func(_ *corev1.PersistentVolume, r *record.Record) { r.Directory = "pvc-2" }, false},
		{"label of another node", func(v *corev1.PersistentVolume, _ *record.Record) { v.Labels[plan.NodeLabel] = them }, false},
		{"label of another pool", func(v *corev1.PersistentVolume, _ *record.Record) { v.Labels[plan.PoolLabel] = "bulk" }, false},
		{"no claim", func(v *corev1.PersistentVolume, _ *record.Record) { v.Spec.ClaimRef = nil }, false},
	} {
		v, r := Successor(OfHost(ofDriver(), pool), pool, us, "host-a", sized("1Mi")),
			&record.Record{Directory: "pvc-1", Replaced: "{}"}
		c.change(v, r)
		if got := Succeeds(v, pool, us, r); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// A finalizer that neither Kubernetes nor a provisioner put there has an owner who waits for the
// deletion.
func TestOthersFinalizer(t *testing.T) {
	for _, c := range []struct {
		name       string
		finalizers []string
		want       string
	}{
		{"none", nil, ""},
		{"Kubernetes' own and ours", []string{plan.PVProtection, plan.Finalizer}, ""},
		{"a backup's, last", []string{plan.PVProtection, plan.Finalizer, "backup.example/hold"}, "backup.example/hold"},
		{"one that begins like Kubernetes' own", []string{plan.PVProtection + "-2"}, plan.PVProtection + "-2"},
	} {
		if got := plan.OthersFinalizer(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Finalizers: c.finalizers}}); got != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}
