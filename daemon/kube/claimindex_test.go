package kube

import (
	"context"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// withPolicy is a control plane of its own, with the policy but not the binding, and a client for
// it.
func withPolicy(t *testing.T) (*cluster.Cluster, *Client, *wire) {
	t.Helper()
	own, err := cluster.Start(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = own.Stop() })
	c, w := newClient(t, Options{Kubeconfig: own.Kubeconfig(), Self: plan.Self{Provisioner: "ours", Node: "node-a"}})
	return own, c, w
}

// An audit tells a cluster that labels claims from one that only has the policy, and labels the
// claims from before it: those alone that may be this daemon's.
func TestAuditClaims(t *testing.T) {
	t.Parallel()
	own, c, w := withPolicy(t)
	ctx, selection := t.Context(), claimindex.SelectionOf(plan.Self{Provisioner: "ours", Node: "node-a"})
	audit := func(wantWhole bool, wantLabelled int) {
		t.Helper()
		if whole, labelled, err := c.AuditClaims(ctx, selection); whole != wantWhole || labelled != wantLabelled || err != nil {
			t.Errorf("whole %t, %d labelled, %v; want %t and %d", whole, labelled, err, wantWhole, wantLabelled)
		}
	}
	try := func(want bool) {
		t.Helper()
		if labels, err := c.TryClaimPolicy(ctx); labels != want || err != nil {
			t.Errorf("a try: %t, %v; want %t", labels, err, want)
		}
	}
	audit(false, 0) // there is no claim
	try(false)
	ns, err := own.NewNamespace(ctx, "audit")
	if err != nil {
		t.Fatal(err)
	}
	claims := own.Client().CoreV1().PersistentVolumeClaims(ns)
	for name, asked := range map[string]string{"a": "", "b": "ours", "c": "others"} {
		claim := cluster.Claim(ns, name, "none", "1Gi")
		claim.Annotations = map[string]string{plan.StorageProvisioner: asked}
		if _, err := claims.Create(ctx, claim, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	audit(false, 0)
	try(false)
	if has, err := c.HasClaimPolicy(ctx); has || err != nil {
		t.Errorf("a policy: %t, %v", has, err)
	}
	own.Since(t, cluster.MutatingPolicies, "MutatingAdmissionPolicy")
	seen := make(chan string, 100)
	go c.WatchClaimIndex(ctx, func(identity string) { seen <- identity })
	if got := <-seen; got != "" {
		t.Errorf("seen %q", got)
	}
	if err := own.Apply(ctx, []byte(claimindex.Manifest)); err != nil {
		t.Fatal(err)
	}
	for got := range seen {
		if got != "" {
			break
		}
	}
	if has, err := c.HasClaimPolicy(ctx); !has || err != nil {
		t.Errorf("a policy: %t, %v", has, err)
	}
	every := time.NewTicker(50 * time.Millisecond) // an API server shows nowhere which policies it applies
	defer every.Stop()
	for whole, labelled := false, 0; !whole; <-every.C {
		if whole, labelled, err = c.AuditClaims(ctx, selection); err != nil || whole && labelled != 2 {
			t.Fatalf("%d labelled, %v", labelled, err)
		}
	}
	audit(true, 0)
	try(true)
	want := map[string]string{"a": "", "b": "ours"}
	all, err := claims.List(ctx, metav1.ListOptions{LabelSelector: claimindex.Label})
	if err != nil || len(all.Items) != len(want) {
		t.Fatalf("%d claims have the label, %v", len(all.Items), err)
	}
	for _, claim := range all.Items {
		if got := claim.Labels[claimindex.Label]; got != want[claim.Name] {
			t.Errorf("%s has the label %q", claim.Name, got)
		}
	}
	w.intercept(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPatch {
			return nil, context.DeadlineExceeded
		}
		return nil, nil
	})
	if _, _, err := c.AuditClaims(ctx, selection); err == nil {
		t.Error("what could not be tried is found whole")
	}
	if _, err := c.TryClaimPolicy(ctx); err == nil {
		t.Error("what could not be tried labels claims")
	}
	if err := own.Client().AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Delete(ctx, claimindex.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := <-seen; got != "" {
		t.Errorf("without a binding: %q", got)
	}
}
