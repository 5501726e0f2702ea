package binding

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

func claimOf(name, node string, mode storagev1.VolumeBindingMode) Claim {
	c := Claim{&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}, &storagev1.StorageClass{VolumeBindingMode: &mode}}
	if node != "" {
		c.Annotations = map[string]string{plan.ProvisionOnNode: node}
	}
	return c
}

func TestConflict(t *testing.T) {
	const now, later = storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer
	const head, tail = "the claims of this pod choose their nodes differently, so that their volumes can be on different nodes: ",
		"; let all of them name the same node in kubevirt.io/provisionOnNode, or none"
	for name, c := range map[string]struct {
		claims []Claim
		want   string
	}{
		"none":                       {nil, ""},
		"one":                        {[]Claim{claimOf("a", "", now)}, ""},
		"both wait":                  {[]Claim{claimOf("a", "", later), claimOf("b", "", later)}, ""},
		"both at once":               {[]Claim{claimOf("a", "", now), claimOf("b", "", now)}, ""},
		"both name the node":         {[]Claim{claimOf("a", "node-a", now), claimOf("b", "node-a", later)}, ""},
		"they name different nodes":  {[]Claim{claimOf("a", "node-a", later), claimOf("b", "node-b", later)}, "a names node node-a, b names node node-b"},
		"one names a node":           {[]Claim{claimOf("a", "node-a", later), claimOf("b", "", later)}, "a names node node-a, b waits for the pod"},
		"one is provided at once":    {[]Claim{claimOf("a", "", now), claimOf("b", "", later)}, "a is provided at once on any node, b waits for the pod"},
		"one of three is different":  {[]Claim{claimOf("a", "", later), claimOf("b", "", later), claimOf("c", "node-a", now)}, "a waits for the pod, b waits for the pod, c names node node-a"},
		"class without binding mode": {[]Claim{{claimOf("a", "", now).PersistentVolumeClaim, &storagev1.StorageClass{}}, claimOf("b", "", later)}, "a is provided at once on any node, b waits for the pod"},
	} {
		if c.want != "" {
			c.want = head + c.want + tail
		}
		if got := Conflict(c.claims); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

func TestMayConflict(t *testing.T) {
	const now, later = storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer
	plain, naming := claimOf("a", "", later), claimOf("b", "node-a", later)
	if classes := []*storagev1.StorageClass{plain.Class, naming.Class}; MayConflict(plain.PersistentVolumeClaim, classes) || !MayConflict(naming.PersistentVolumeClaim, classes) {
		t.Error("with one binding mode, a claim that names a node may conflict, and no other")
	}
	if !MayConflict(plain.PersistentVolumeClaim, []*storagev1.StorageClass{plain.Class, claimOf("", "", now).Class}) {
		t.Error("with both binding modes, every claim may conflict")
	}
}
