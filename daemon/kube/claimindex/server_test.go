package claimindex

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

var plane *cluster.Cluster

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	var err error
	if plane, err = cluster.Start(context.Background(), cluster.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code = m.Run()
	if err := plane.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// inForce applies the policy and waits until claims are labelled.
func inForce(t *testing.T) (namespace string) {
	t.Helper()
	plane.Since(t, cluster.MutatingPolicies, "MutatingAdmissionPolicy")
	if err := plane.Apply(t.Context(), []byte(Manifest)); err != nil {
		t.Fatal(err)
	}
	namespace, err := plane.NewNamespace(t.Context(), "index")
	if err != nil {
		t.Fatal(err)
	}
	every := time.NewTicker(50 * time.Millisecond) // an API server shows nowhere which policies it applies
	defer every.Stop()
	for {
		got, err := plane.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), cluster.Claim(namespace, "try", "none", "1Gi"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			t.Fatal(err)
		}
		if _, labelled := got.Labels[Label]; labelled {
			return namespace
		}
		select {
		case <-every.C:
		case <-t.Context().Done():
			t.Fatal("no claim is labelled")
		}
	}
}

// The API server returns the policy as it is known here, and one that was changed is another.
func TestIdentity(t *testing.T) {
	inForce(t)
	ctx, admission := t.Context(), plane.Client().AdmissionregistrationV1()
	policy, err := admission.MutatingAdmissionPolicies().Get(ctx, Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding, err := admission.MutatingAdmissionPolicyBindings().Get(ctx, Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	id := Claims.Identity(policy, binding)
	if id == "" || policy.Generation == 0 || binding.Generation == 0 {
		t.Fatalf("%q, generations %d and %d", id, policy.Generation, binding.Generation)
	}
	if Claims.Identity(nil, binding) != "" || Claims.Identity(policy, nil) != "" {
		t.Error("one of them is enough")
	}
	for name, change := range map[string]func(){
		"variable": func() { policy.Spec.Variables[0].Expression = "''" },
		"mutation": func() { policy.Spec.Mutations[0].JSONPatch.Expression = "[]" },
		"selector": func() {
			policy.Spec.MatchConstraints.NamespaceSelector = metav1.SetAsLabelSelector(labels.Set{"a": "b"})
		},
		"binding": func() { binding.Spec.PolicyName = "other" },
		"deleted": func() { now := metav1.Now(); policy.DeletionTimestamp = &now },
	} {
		wasPolicy, wasBinding := policy, binding
		policy, binding = policy.DeepCopy(), binding.DeepCopy()
		change()
		if Claims.Identity(policy, binding) != "" {
			t.Error(name, "is not noticed")
		}
		policy, binding = wasPolicy, wasBinding
	}
	policy.Generation++
	if Claims.Identity(policy, binding) == id {
		t.Error("another generation is the same index")
	}
}

// The policy writes what Value returns, at each step of a claim's life and whatever its author
// wrote.
func TestPolicyWritesValue(t *testing.T) {
	namespace := inForce(t)
	claims := plane.Client().CoreV1().PersistentVolumeClaims(namespace)
	long := "p"
	for len(long) < 64 {
		long += "p"
	}
	for name, c := range map[string]struct {
		annotations, labels map[string]string
		want                string
	}{
		"nothing":  {nil, nil, ""},
		"forged":   {nil, map[string]string{Label: "other", "a": "b"}, ""},
		"asked":    {map[string]string{plan.StorageProvisioner: "hostpath-provisioner"}, nil, "hostpath-provisioner"},
		"beta":     {map[string]string{plan.StorageProvisionerBeta: plan.Rancher}, map[string]string{"a": "b"}, "rancher.io_local-path"},
		"both":     {map[string]string{plan.StorageProvisioner: "a", plan.StorageProvisionerBeta: "b"}, nil, "a"},
		"empty":    {map[string]string{plan.StorageProvisioner: "", plan.StorageProvisionerBeta: "b"}, nil, "b"},
		"long":     {map[string]string{plan.StorageProvisioner: long}, nil, ""},
		"longest":  {map[string]string{plan.StorageProvisioner: long[1:]}, nil, long[1:]},
		"no-label": {map[string]string{plan.StorageProvisioner: "a b\n"}, nil, ""},
		"slash":    {map[string]string{plan.StorageProvisioner: "a/"}, nil, ""},
		"newline":  {map[string]string{plan.StorageProvisioner: "a\n"}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			claim := cluster.Claim(namespace, name, "none", "1Gi")
			claim.Annotations, claim.Labels = c.annotations, c.labels
			claim, err := claims.Create(t.Context(), claim, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			agree(t, claim, c.want, true)
			delete(claim.Labels, Label)
			if claim, err = claims.Update(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			agree(t, claim, c.want, true)
		})
	}
}

// agree wants a label, or none, on a claim and by Value.
func agree(t *testing.T, c *corev1.PersistentVolumeClaim, want string, labelled bool) {
	t.Helper()
	got, is := c.Labels[Label]
	value, should := Value(c)
	if is != labelled || should != labelled || got != want || value != want {
		t.Errorf("the label is %q (%t), by Value %q (%t), want %q (%t)", got, is, value, should, want, labelled)
	}
}

// A claim that has its volume loses the label, and has it again while it requests more than it has.
func TestPolicyOfBoundClaims(t *testing.T) {
	namespace := inForce(t)
	ctx := t.Context()
	expands := true
	class := cluster.StorageClass("grows-"+namespace, "none", "Immediate")
	class.AllowVolumeExpansion = &expands
	if _, err := plane.Client().StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, requested, has string
		grows                bool
	}{
		{"equal", "1Gi", "1Gi", false}, {"more", "2Gi", "1Gi", true}, {"notation", "2Gi", "2048Mi", false}, {"less", "2Gi", "3Gi", false},
		{"huge", "1e30", "1Gi", true}, {"fraction", "1500M", "1Gi", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			claim := bound(t, namespace, c.name, class.Name)
			agree(t, claim, "", false)
			claim = patch(t, claim, fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, c.requested))
			agree(t, claim, "", c.requested != "1Gi")
			claim = patch(t, claim, fmt.Sprintf(`{"status":{"capacity":{"storage":%q}}}`, c.has), "status")
			agree(t, claim, "", c.grows)
			claim = patch(t, claim, fmt.Sprintf(`{"metadata":{"labels":{%q:"forged"}}}`, Label))
			agree(t, claim, "", c.grows)
			claim = patch(t, claim, fmt.Sprintf(`{"status":{"capacity":{"storage":%q}}}`, c.requested), "status")
			agree(t, claim, "", false)
		})
	}
}

// A claim that names a VolumeAttributesClass has the label until its status has the class, too.
func TestPolicyOfRestyledClaims(t *testing.T) {
	claim := bound(t, inForce(t), "restyled", "")
	for _, step := range []struct {
		patch       string
		subresource []string
		asks        bool
	}{
		{`{"spec":{"volumeAttributesClassName":"gold"}}`, nil, true},
		{`{"metadata":{"labels":{"a":"b"}}}`, nil, true},
		{`{"status":{"currentVolumeAttributesClassName":"gold"}}`, []string{"status"}, false},
		{`{"spec":{"volumeAttributesClassName":"silver"}}`, nil, true},
		{`{"spec":{"volumeAttributesClassName":"gold"}}`, nil, false},
	} {
		claim = patch(t, claim, step.patch, step.subresource...)
		agree(t, claim, "", step.asks)
	}
}

func patch(t *testing.T, c *corev1.PersistentVolumeClaim, text string, subresources ...string) *corev1.PersistentVolumeClaim {
	t.Helper()
	now, err := plane.Client().CoreV1().PersistentVolumeClaims(c.Namespace).Patch(t.Context(), c.Name, types.MergePatchType, []byte(text), metav1.PatchOptions{}, subresources...)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// bound makes a claim of 1 GiB and its volume, and waits until kube-controller-manager bound them.
func bound(t *testing.T, namespace, name, class string) *corev1.PersistentVolumeClaim {
	t.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	claim := cluster.Claim(namespace, name, class, "1Gi")
	claim.Annotations = map[string]string{plan.StorageProvisioner: "a"}
	claim.Spec.VolumeName = namespace + "-" + name
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: claim.Spec.AccessModes, StorageClassName: class, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/none"}},
	}}
	if _, err := plane.Client().CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := plane.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	claim, err := plane.WaitClaimBound(t.Context(), namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	return claim
}
