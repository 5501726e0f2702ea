package plan

import (
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestBytes(t *testing.T) {
	const most = math.MaxInt64
	cases := []struct {
		size  string
		bytes int64
		exact bool
	}{
		{"0", 0, true}, {"1", 1, true}, {"1Gi", 1 << 30, true}, {"1G", 1e9, true}, {"1.5Ki", 1536, true}, {"1e3", 1000, true},
		{"0.5", 1, true}, {"1500m", 2, true}, {"1n", 1, true}, {"0.000000000000000000000000001", 1, true},
		{"-1", 0, false}, {"-0.5", 0, false}, {"-100E", 0, false},
		{"9223372036854775807", most, true}, {"9.223372036854775807E", most, true}, {"7Ei", 7 << 60, true}, {"9E", 9e18, true},
		{"9223372036854775808", most, false}, {"10E", most, false}, {"100E", most, false}, {"1e19", most, false}, {"1e30", most, false},
		{"1e999999999", most, false}, {"123456789012345678901234567890", most, false},
	}
	for _, c := range cases {
		q := resource.MustParse(c.size)
		if n, exact := Bytes(q); n != c.bytes || exact != c.exact {
			t.Errorf("%s is %d, %v; want %d, %v", c.size, n, exact, c.bytes, c.exact)
		}
		if n, exact := Bytes(leanQuantity(q)); n != c.bytes || exact != c.exact {
			t.Errorf("%s, as it is held, is %d, %v", c.size, n, exact)
		}
	}
	if fits(resource.MustParse("100E"), math.MaxUint64) || !fits(resource.MustParse("9223372036854775807"), math.MaxInt64) || fits(resource.MustParse("2"), 1) {
		t.Error("what fits is wrong")
	}
}

// The annotation counts where both are there, as GetPersistentVolumeClaimClass has it.
func TestClassNames(t *testing.T) {
	field, empty := "field", ""
	cases := []struct {
		field      *string
		annotation *string
		want       string
	}{{nil, nil, ""}, {&field, nil, "field"}, {nil, new("beta"), "beta"}, {&field, new("beta"), "beta"}, {&field, &empty, ""}, {&empty, nil, ""}}
	for _, c := range cases {
		claim, pv := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
		claim.Spec.StorageClassName = c.field
		if c.field != nil {
			pv.Spec.StorageClassName = *c.field
		}
		if c.annotation != nil {
			claim.Annotations = map[string]string{ClassBeta: *c.annotation}
			pv.Annotations = claim.Annotations
		}
		if got := ClassName(claim); got != c.want {
			t.Errorf("claim with %v and %v: %q, want %q", c.field, c.annotation, got, c.want)
		}
		if got := VolumeClass(pv); got != c.want {
			t.Errorf("volume with %v and %v: %q, want %q", c.field, c.annotation, got, c.want)
		}
		if got := ClassName(LeanClaim(claim)); got != c.want {
			t.Errorf("what is held of the claim has class %q, want %q", got, c.want)
		}
	}
}

// The volume's class is what the binder compares with the claim's, so it is the claim's by the same
// rule.
func TestVolumeHasTheClaimsClass(t *testing.T) {
	f := ready()
	f.Claim.Annotations[ClassBeta] = "beta"
	if pv := NewVolume(f, "dir"); VolumeClass(pv) != "beta" {
		t.Errorf("the volume's class is %q", VolumeClass(pv))
	}
}

// What is held of a claim decides as the whole one does, and is small whatever the whole one is.
func TestLeanClaim(t *testing.T) {
	large := strings.Repeat("x", 256<<10)
	f := ready()
	c := f.Claim
	c.Labels, c.Finalizers = map[string]string{"a": large}, []string{large}
	c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: large}}
	c.Annotations["large"], c.Annotations[ProvisionOnNode], c.Annotations[ClassBeta] = large, large, large
	c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": large}}
	c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: &large, Kind: large, Name: large}
	c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: &large, Kind: large, Name: large}
	c.Spec.Resources.Requests["other"] = resource.MustParse("1")
	c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Message: large}}
	for range 10_000 {
		c.Spec.AccessModes = append(c.Spec.AccessModes, corev1.ReadWriteOnce)
	}
	lean := LeanClaim(c)
	if size := lean.Size(); size > 4<<10 {
		t.Errorf("%d bytes are held", size)
	}
	if ClassName(lean) == large || len(ClassName(lean)) > 253 {
		t.Errorf("class of %d bytes", len(ClassName(lean)))
	}
	if lean.Spec.Selector == nil || lean.Spec.DataSource == nil || lean.Spec.DataSourceRef == nil || len(lean.Spec.AccessModes) != 1 {
		t.Errorf("held: %+v", lean.Spec)
	}
	ask(c, strings.Repeat("9", 10_000))
	if q := LeanClaim(c).Spec.Resources.Requests[corev1.ResourceStorage]; q.AsDec().UnscaledBig().BitLen() > 200 || fits(q, math.MaxUint64) {
		t.Errorf("the size is held as %s", q.String())
	}
	plain := ready()
	whole := ForClaim(plain)
	plain.Claim = LeanClaim(plain.Claim)
	if got := ForClaim(plain); got != whole {
		t.Errorf("decided %+v, of the whole claim %+v", got, whole)
	}
}

// LeanVolume has what the rules and the writes want: version, finalizers, labels, the whole spec.
func TestLeanVolume(t *testing.T) {
	f := ready()
	pv := NewVolume(f, "dir")
	pv.UID, pv.ResourceVersion, pv.Status.Phase = "u", "7", corev1.VolumeBound
	want := pv.DeepCopy()
	pv.Annotations["large"], pv.Labels["other"], pv.Status.Message = strings.Repeat("x", 256<<10), "x", strings.Repeat("x", 1<<20)
	got := LeanVolume(pv)
	if got.String() != want.String() {
		t.Errorf("held\n%v\nwant\n%v", got, want)
	}
}

// What the annotation says counts as long as the capacity is the one that it was written for, and
// only if it is less.
func TestSizeOf(t *testing.T) {
	for note, want := range map[string]string{
		"": "2Gi", "1Mi of 2Gi": "1Mi", "0 of 2Gi": "0", "1Mi of 1Gi": "2Gi", "3Gi of 2Gi": "2Gi",
		"-1 of 2Gi": "2Gi",
		"1Mi":       "2Gi", "x of 2Gi": "2Gi", "1e999999999 of 2Gi": "2Gi", " of 2Gi": "2Gi",
	} {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{SizeAnnotation: note}}}
		v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
		for _, seen := range []*corev1.PersistentVolume{v, LeanVolume(v)} {
			if got := SizeOf(seen); got.String() != want {
				t.Errorf("%q: %s", note, got.String())
			}
		}
	}
	v := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}}}
	v.Annotations = map[string]string{SizeAnnotation: SizeNote(v, resource.MustParse("5Mi"))}
	if got := SizeOf(v); got.String() != "5Mi" {
		t.Errorf("noted and read: %s", got.String())
	}
}
