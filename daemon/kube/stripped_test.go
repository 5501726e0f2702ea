package kube

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// stripper is a policy of another program that takes the labels of both policies away. Its binding
// has its name.
const stripper = `---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: zz-strips}
spec:
  failurePolicy: Fail
  reinvocationPolicy: IfNeeded
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [persistentvolumeclaims, persistentvolumes]}]
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        expression: >-
          ['hostpath-provisioner/claim', 'hostpath-provisioner/kept-for'].filter(l, has(object.metadata.labels) && l in object.metadata.labels)
          .map(l, JSONPatch{op: "remove", path: "/metadata/labels/" + jsonpatch.escapeKey(l)})
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: zz-strips}
spec: {policyName: zz-strips}
`

// labelled has manifests applied, and waits until the API server writes the label on new claims, or
// takes it away.
func labelled(t *testing.T, own *cluster.Cluster, manifests, ns string, want bool) {
	t.Helper()
	own.Since(t, cluster.MutatingPolicies, "MutatingAdmissionPolicy")
	if err := own.Apply(t.Context(), []byte(manifests)); err != nil {
		t.Fatal(err)
	}
	every := time.NewTicker(50 * time.Millisecond) // an API server shows nowhere which policies it applies
	defer every.Stop()
	claim := cluster.Claim(ns, "try", "none", "1Gi")
	claim.Labels = map[string]string{claimindex.Label: "forged"}
	for range 1200 { // a minute
		c, err := own.Client().CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), claim, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			t.Fatal(err)
		}
		if value, is := c.Labels[claimindex.Label]; is == want && value == "" {
			return
		}
		<-every.C
	}
	t.Fatalf("the label is not as wanted: %t", want)
}

// strip has another policy take the label away. In which order an API server applies two policies
// is not defined: the index's own is no more applied.
func strip(t *testing.T, own *cluster.Cluster, ns string) {
	t.Helper()
	if err := own.Client().AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Delete(t.Context(), claimindex.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	labelled(t, own, stripper, ns, false)
}

// An index whose labels another policy takes away is not used: neither that of claims, nor that of
// volumes.
func TestStrippedLabels(t *testing.T) {
	t.Parallel()
	own, c, w := withPolicy(t)
	ctx, selection := t.Context(), claimindex.SelectionOf(plan.Self{Provisioner: "ours", Node: "node-a"})
	ns, err := own.NewNamespace(ctx, "stripped")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := own.Client().CoreV1().PersistentVolumeClaims(ns).Create(ctx, cluster.Claim(ns, "early", "none", "1Gi"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kept := volume("kept", "kept")
	kept.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "c"}
	if kept, err = own.Client().CoreV1().PersistentVolumes().Create(ctx, kept, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	labelled(t, own, claimindex.Manifest, ns, true)
	w.intercept(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPatch && !strings.Contains(r.URL.RawQuery, "dryRun") {
			return nil, errors.New("refused")
		}
		return nil, nil
	})
	if whole, missed, err := c.AuditClaims(ctx, selection); whole || missed != 1 || err == nil {
		t.Errorf("a claim that cannot be labelled: whole %t, %d, %v", whole, missed, err)
	}
	w.intercept(func(*http.Request) (*http.Response, error) { return nil, nil })
	strip(t, own, ns)
	if whole, _, err := c.AuditClaims(ctx, selection); whole || err != nil {
		t.Errorf("without labels: whole %t, %v", whole, err)
	}
	if labels, err := c.TryClaimPolicy(ctx); labels || err != nil {
		t.Errorf("a try without labels: %t, %v", labels, err)
	}
	if labels, err := c.TryVolumeIndex(ctx, kept); labels || err != nil {
		t.Errorf("a try without labels of volumes: %t, %v", labels, err)
	}
}

// boundClaim makes a claim that is bound, as far as its objects tell.
func boundClaim(ctx context.Context, t *testing.T, own *cluster.Cluster, ns, name string) {
	t.Helper()
	claims := own.Client().CoreV1().PersistentVolumeClaims(ns)
	claim := cluster.Claim(ns, name, "none", "1Gi")
	claim.Spec.VolumeName = "pvc-" + name
	if _, err := claims.Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := claims.Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// Whether claims are labelled is tried with one that has no volume, if there is one: of those that
// are bound the policy takes the label away, as another program may.
func TestTriedWithAWaitingClaim(t *testing.T) {
	t.Parallel()
	own, c, _ := withPolicy(t)
	ns, err := own.NewNamespace(t.Context(), "waiting")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		boundClaim(t.Context(), t, own, ns, name)
	}
	labelled(t, own, claimindex.Manifest, ns, true)
	if labels, err := c.TryClaimPolicy(t.Context()); !labels || err != nil {
		t.Errorf("a try with bound claims: %t, %v", labels, err)
	}
	if _, err := own.Client().CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), cluster.Claim(ns, "waits", "none", "1Gi"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	strip(t, own, ns)
	if labels, err := c.TryClaimPolicy(t.Context()); labels || err != nil {
		t.Errorf("a try without labels: %t, %v", labels, err)
	}
	if whole, _, err := c.AuditClaims(t.Context(), claimindex.SelectionOf(plan.Self{Provisioner: "ours", Node: "node-a"})); whole || err != nil {
		t.Errorf("without labels: whole %t, %v", whole, err)
	}
}
