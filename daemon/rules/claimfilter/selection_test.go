package claimfilter

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

const other = "other.example/x" // a provisioner

// kinds calls visit with a claim of each kind: whom it asks, which node it has, whether it has a
// volume or grows.
func kinds(visit func(*corev1.PersistentVolumeClaim)) {
	for _, asked := range []string{"", plan.DefaultProvisioner, plan.Rancher, other} {
		for _, key := range []string{plan.StorageProvisioner, plan.StorageProvisionerBeta} {
			for _, selected := range []string{"", self.Node, "node-b"} {
				for _, named := range []string{"", self.Node, "node-b"} {
					for _, class := range []string{plan.ScopeNode, plan.ScopeShared, plan.ScopeEveryNode, "unknown"} {
						for _, volume := range []string{"", "pv", "ours"} {
							c := grows("a", 0)
							if c.Spec.VolumeName = volume; volume == "" {
								c.Status.Phase, c.Status.Capacity = corev1.ClaimPending, nil
							}
							c.Spec.StorageClassName = &class
							c.Annotations = map[string]string{key: asked, plan.SelectedNode: selected, plan.ProvisionOnNode: named}
							visit(c)
						}
					}
				}
			}
		}
	}
}

// Whatever a filter holds, the API server selects by the label that the policy of the claim index
// writes. Not so a claim without a node for which another provisioner was asked, though its class
// is ours now: it is held to be explained if it fits on no node, and kube-controller-manager asks
// again before it can have a volume.
func TestSelectionHasWhatIsHeld(t *testing.T) {
	mode, held, foreign := storagev1.VolumeBindingWaitForFirstConsumer, 0, 0
	serves := self
	serves.Aliases = []string{plan.Rancher}
	selection := claimindex.SelectionOf(serves)
	for _, await := range []bool{true, false} {
		f := withClasses(plan.ScopeNode, plan.ScopeShared, plan.ScopeEveryNode)
		serves.AwaitRequest = await
		f = New(serves, f.pools, f.classes, f.volumes)
		for _, scope := range []string{plan.ScopeNode, plan.ScopeShared} {
			class, _ := f.classes(scope)
			class.VolumeBindingMode = &mode
		}
		kinds(func(c *corev1.PersistentVolumeClaim) {
			keep, selected := f.Keep(c), selection.Misses(c) // it has no label yet
			elsewhere := c.Annotations[plan.StorageProvisioner]+c.Annotations[plan.StorageProvisionerBeta] == other && plan.NodeOpen(c)
			if keep && !selected && !elsewhere {
				t.Errorf("held and not selected: %v, class %s, volume %q", c.Annotations, *c.Spec.StorageClassName, c.Spec.VolumeName)
			}
			if keep {
				held++
			}
			if !selected {
				foreign++
			}
		})
	}
	if held < 100 || foreign < 100 {
		t.Errorf("%d are held, %d are left out", held, foreign)
	}
}
