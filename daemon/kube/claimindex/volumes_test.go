package claimindex

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// volumesInForce applies the policy of volumes and waits until they are labelled.
func volumesInForce(t *testing.T) {
	t.Helper()
	plane.Since(t, cluster.MutatingPolicies, "MutatingAdmissionPolicy")
	if err := plane.Apply(t.Context(), []byte(VolumesManifest)); err != nil {
		t.Fatal(err)
	}
	every := time.NewTicker(50 * time.Millisecond) // an API server shows nowhere which policies it applies
	defer every.Stop()
	for {
		got, err := plane.Client().CoreV1().PersistentVolumes().Create(t.Context(), keptVolume("try", &corev1.ObjectReference{Namespace: "ns", Name: "c"}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			t.Fatal(err)
		}
		if _, labelled := got.Labels[VolumeLabel]; labelled {
			return
		}
		select {
		case <-every.C:
		case <-t.Context().Done():
			t.Fatal("no volume is labelled")
		}
	}
}

func keptVolume(name string, ref *corev1.ObjectReference) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size("1Gi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: "none",
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, ClaimRef: ref,
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/none"}},
	}}
}

// agreed wants the label on a volume that VolumeValue returns, and that a daemon that looks for its
// claim has it selected.
func agreed(t *testing.T, v *corev1.PersistentVolume, step string) {
	t.Helper()
	got, is := v.Labels[VolumeLabel]
	value, should := VolumeValue(v)
	if is != should || got != value || VolumeMissed(v) {
		t.Errorf("%s: the label is %q (%t), by VolumeValue %q (%t)", step, got, is, value, should)
	}
	if !should {
		return
	}
	selector, err := labels.Parse(VolumeSelector([]string{"other", v.Spec.ClaimRef.Name}))
	if err != nil || !selector.Matches(labels.Set(v.Labels)) {
		t.Errorf("%s: %s does not select it, %v", step, selector, err)
	}
}

// The policy labels each volume that is kept for a claim, in whatever order its fields are written:
// with its creation, with its claimRef, with its status.
func TestPolicyOfVolumes(t *testing.T) {
	volumesInForce(t)
	ctx, volumes := t.Context(), plane.Client().CoreV1().PersistentVolumes()
	long := strings.Repeat("n", 63)
	for name, ref := range map[string]*corev1.ObjectReference{
		"free":      nil,
		"empty":     {},
		"by-name":   {Namespace: "ns", Name: "data-0"},
		"by-uid":    {Namespace: "ns", Name: "data-0", UID: "u-1"},
		"pvc-u-2":   {Namespace: "ns", Name: "data-0", UID: "u-2"}, // its own
		"pvc-u-3":   {Namespace: "ns", Name: "data-0", UID: "u-4"},
		"longest":   {Namespace: "ns", Name: long},
		"long":      {Namespace: "ns", Name: long + "n"},
		"dots":      {Namespace: "ns", Name: "a.b-c"},
		"malformed": {Namespace: "ns", Name: "a/b\n"},
	} {
		t.Run(name, func(t *testing.T) {
			v := keptVolume(name, ref)
			v.Labels = map[string]string{VolumeLabel: "forged", "a": "b"}
			v, err := volumes.Create(ctx, v, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			agreed(t, v, "created")
			for _, step := range []struct{ what, patch, subresource string }{
				{"label removed", `{"metadata":{"labels":null}}`, ""},
				{"label forged", `{"metadata":{"labels":{"` + VolumeLabel + `":"forged"}}}`, ""},
				{"label forged with a status", `{"metadata":{"labels":{"` + VolumeLabel + `":"forged"}},"spec":{"claimRef":null},"status":{"phase":"Released"}}`, "status"},
				{"label removed with a status", `{"metadata":{"labels":null},"status":{"phase":"Available"}}`, "status"},
				{"UID removed", `{"spec":{"claimRef":{"namespace":"ns","name":"data-0","uid":null}}}`, ""},
				{"released", `{"spec":{"claimRef":null}}`, ""},
				{"kept again", `{"spec":{"claimRef":{"namespace":"ns","name":"data-1"}}}`, ""},
			} {
				var of []string
				if step.subresource != "" {
					of = []string{step.subresource}
				}
				if v, err = volumes.Patch(ctx, name, types.MergePatchType, []byte(step.patch), metav1.PatchOptions{}, of...); err != nil {
					t.Fatal(step.what, err)
				}
				agreed(t, v, step.what)
			}
		})
	}
	generated := keptVolume("", &corev1.ObjectReference{Namespace: "ns", Name: "data-0"})
	generated.GenerateName = "generated-"
	v, err := volumes.Create(ctx, generated, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	agreed(t, v, "with a generated name")
}

// The API server returns the policy of volumes as it is known here; the one of claims is another.
func TestIdentityOfVolumes(t *testing.T) {
	volumesInForce(t)
	inForce(t)
	admission := plane.Client().AdmissionregistrationV1()
	ids := map[string]string{}
	for _, name := range []string{Name, VolumesName} {
		policy, err := admission.MutatingAdmissionPolicies().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		binding, err := admission.MutatingAdmissionPolicyBindings().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = Volumes.Identity(policy, binding)
	}
	if ids[Name] != "" || ids[VolumesName] == "" {
		t.Errorf("%q", ids)
	}
}
