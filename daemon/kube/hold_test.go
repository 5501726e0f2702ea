package kube

import (
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

func TestHoldVolume(t *testing.T) {
	c, _ := newClient(t, Options{})
	free := created(t, volume("hold-free", "1", others))
	now, err := c.HoldVolume(t.Context(), free)
	if err != nil || !slices.Equal(finalizers(now), []string{others, plan.Finalizer}) {
		t.Fatalf("%v, %v", now, err)
	}
	if _, err := c.HoldVolume(t.Context(), free); !apierrors.IsConflict(err) {
		t.Errorf("one that was changed since it was read: %v, want a conflict", err)
	}
	again, err := c.HoldVolume(t.Context(), now)
	if err != nil || again.ResourceVersion != now.ResourceVersion {
		t.Errorf("one that is held: %v, %v", again, err)
	}
	gone := free.DeepCopy()
	gone.Name = "hold-gone"
	if now, err := c.HoldVolume(t.Context(), gone); now != nil || err != nil {
		t.Errorf("one that is gone: %v, %v", now, err)
	}
}
