package kube

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// told is what a claim's status says of an expansion, and of other controllers.
func told(c *corev1.PersistentVolumeClaim) string {
	var conditions []string
	for _, condition := range c.Status.Conditions {
		conditions = append(conditions, string(condition.Type)+condition.Message)
	}
	slices.Sort(conditions)
	return fmt.Sprintf("%s %s %q %v %s", c.Status.Capacity.Storage(), c.Status.AllocatedResources.Storage(),
		c.Status.AllocatedResourceStatuses[corev1.ResourceStorage], conditions, c.Annotations[plan.StorageResizer])
}

// Each step of an expansion is one request, which changes what it names and nothing else, and fails
// if the claim was changed.
func TestPatchClaimStatus(t *testing.T) {
	ctx := t.Context()
	c, w := newClient(t, Options{})
	claims := plane.Client().CoreV1().PersistentVolumeClaims("default")
	claim := newClaim(t, plane, "default", "resized", "")
	patch := []byte(`{"status":{"capacity":{"storage":"1Gi","example.com/other":"5"},"conditions":[{"type":"Other","status":"True","message":" stays"},{"type":"NodeResizeError","status":"True"}]}}`)
	claim, err := claims.Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	facts := plan.ExpandFacts{Claim: claim, Volume: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{plan.ProvisionedBy: "p"}}}}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	dropped, err := plane.Before(cluster.ResizeStates)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name   string
		status plan.ClaimStatus
		want   string
	}{
		{"infeasible", plan.InfeasibleStatus(facts, " no room", time.Now()), `1Gi 2Gi "ControllerResizeInfeasible" [ControllerResizeError no room NodeResizeError Other stays Resizing] p`},
		{"begun", plan.BegunStatus(facts, time.Now()), `1Gi 2Gi "ControllerResizeInProgress" [Other stays Resizing] p`},
		{"done", plan.DoneStatus(resource.MustParse("2Gi")), `2Gi 2Gi "" [Other stays] p`},
		{"done again", plan.DoneStatus(resource.MustParse("2Gi")), `2Gi 2Gi "" [Other stays] p`},
	} {
		w.forget()
		older := claim
		if claim, err = c.PatchClaimStatus(ctx, claim, step.status); err != nil || len(w.requests()) != 1 {
			t.Fatalf("%s: %v, requests %q", step.name, err, w.requests())
		}
		want := step.want
		if dropped { // what was allocated, and the state
			want = regexp.MustCompile(` 2Gi "\w*"`).ReplaceAllString(want, ` 0 ""`)
		}
		if got := told(claim); got != want {
			t.Errorf("%s:\n%s, want\n%s", step.name, got, want)
		}
		if claim.ResourceVersion == older.ResourceVersion {
			continue // nothing was changed
		}
		if _, err := c.PatchClaimStatus(ctx, older, step.status); !apierrors.IsConflict(err) {
			t.Errorf("%s, of a claim that was changed: %v", step.name, err)
		}
	}
	if other := claim.Status.Capacity["example.com/other"]; other.String() != "5" {
		t.Errorf("another capacity is %s", other.String())
	}
	claim.UID, claim.ResourceVersion = "another", "1"
	if _, err := c.PatchClaimStatus(ctx, claim, plan.DoneStatus(resource.MustParse("3Gi"))); !apierrors.IsConflict(err) {
		t.Errorf("another claim of the name: %v", err)
	}
}

func TestSetCapacity(t *testing.T) {
	ctx := t.Context()
	c, w := newClient(t, Options{})
	pv := created(t, volume("sized", "8"))
	w.forget()
	if err := c.SetCapacity(ctx, pv, resource.MustParse("7Gi")); err != nil || len(w.requests()) != 1 {
		t.Fatalf("%v, requests %q", err, w.requests())
	}
	now, err := c.GetVolume(ctx, pv.Name)
	if err != nil || now.Spec.Capacity.Storage().String() != "7Gi" {
		t.Errorf("%v, %v", err, now.Spec.Capacity)
	}
	if now.Spec.Capacity = pv.Spec.Capacity; fmt.Sprint(now.Spec.HostPath, now.Finalizers, now.Labels) != fmt.Sprint(pv.Spec.HostPath, pv.Finalizers, pv.Labels) {
		t.Errorf("was\n%v\nis\n%v", pv, now)
	}
	if err := c.SetCapacity(ctx, pv, resource.MustParse("8Gi")); !apierrors.IsConflict(err) {
		t.Errorf("of an object that was changed: %v", err)
	}
}
