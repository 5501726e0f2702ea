package claimindex

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// An object that replaces a claim may have any status, or none (kubectl replace): the API server
// keeps the one that it has. The label follows that.
func TestPolicyOfReplacedClaims(t *testing.T) {
	namespace := inForce(t)
	ctx := t.Context()
	expands := true
	class := cluster.StorageClass("replaced-"+namespace, "none", "Immediate")
	class.AllowVolumeExpansion = &expands
	if _, err := plane.Client().StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		request string
		status  corev1.PersistentVolumeClaimStatus
		grows   bool
	}{
		"without": {"2Gi", corev1.PersistentVolumeClaimStatus{}, true},
		"forged":  {"2Gi", corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size("2Gi")}, true},
		"pending": {"2Gi", corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending, Capacity: size("1Gi")}, true},
		"same":    {"1Gi", corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size("1Mi")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			claim := bound(t, namespace, name, class.Name)
			claim.Spec.Resources.Requests = size(c.request)
			claim.Status = c.status
			claim.ResourceVersion = "" // Kubernetes 1.37 writes a condition meanwhile
			claim, err := plane.Client().CoreV1().PersistentVolumeClaims(namespace).Update(ctx, claim, metav1.UpdateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			agree(t, claim, "", c.grows)
		})
	}
}

func size(text string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
}
