package daemon

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
)

func elsewhere(namespace string, i int) *corev1.PersistentVolumeClaim {
	name := fmt.Sprint(namespace, "-", i)
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), Annotations: map[string]string{
		plan.StorageProvisioner: plan.DefaultProvisioner, plan.SelectedNode: "node-b",
	}}}
}

// What one namespace has does not use up the room of the others, and all is read again when there is room.
func TestOthersAreBounded(t *testing.T) {
	o := newOthers(func(c *corev1.PersistentVolumeClaim) bool {
		return plan.Self{Provisioner: plan.DefaultProvisioner, Node: "node-a"}.KeepClaimOfOther(c)
	})
	for i := range othersOfNamespace {
		if !o.admit(elsewhere("a", i)) || !o.admit(elsewhere("a", i)) {
			t.Fatalf("claim %d is not held", i)
		}
	}
	if o.admit(elsewhere("a", othersOfNamespace)) || !o.admit(elsewhere("b", 0)) {
		t.Error("one namespace has more than its part, or another one has none")
	}
	again := 0
	for i := range othersOfNamespace {
		bound := elsewhere("a", i)
		bound.Spec.VolumeName = "pv"
		if o.changed(elsewhere("a", i), bound) {
			again++
		}
	}
	if again != 1 || len(o.held) != 1 || len(o.spaces) != 1 {
		t.Errorf("read again %d times; %d claims of %d namespaces are held", again, len(o.held), len(o.spaces))
	}
	for i := range 2 * othersInAll {
		o.admit(elsewhere(fmt.Sprint("n", i/100), i))
	}
	if len(o.held) != othersInAll {
		t.Errorf("%d claims are held", len(o.held))
	}
}
