package controllers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// A claim that requests more than it has is the work of its volume's pool, whatever became of its
// class. If the watch brings the claim first, it is looked at again when the volume comes.
func TestGrowingClaimGoesToItsVolumesPool(t *testing.T) {
	size := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "u"}}
	claim.Spec.VolumeName, claim.Spec.Resources.Requests = "pvc-u", size("2Gi")
	claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size("1Gi")}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-u", Labels: map[string]string{plan.PoolLabel: "fast"}}}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "c", UID: "u"}
	pv.Status.Phase = corev1.VolumeBound

	c, w := stand(&api{}, &shelf{})
	c.Listers.Classes, c.Listers.Claims = none[*storagev1.StorageClass]{}, many{"ns/c": claim}
	nowhere := c.workers[""]
	c.ClaimChanged(nil, claim)
	if nowhere.claims.Len() != 1 || w.claims.Len() != 0 {
		t.Errorf("without its volume: %d of no pool, %d of its pool", nowhere.claims.Len(), w.claims.Len())
	}
	i, _ := nowhere.claims.Get()
	if after, err := c.claim(t.Context(), nowhere, i); after != 0 || err != nil {
		t.Errorf("without its volume: again after %s, %v", after, err)
	}
	nowhere.claims.Done(i)
	c.Listers.Volumes = one[*corev1.PersistentVolume]{pv}
	if c.VolumeChanged(nil, pv); w.claims.Len() != 1 {
		t.Error("its volume came, and it is not looked at")
	}
	if c.ClaimChanged(nil, claim); nowhere.claims.Len() != 0 || w.claims.Len() != 1 {
		t.Errorf("with its volume: %d of no pool, %d of its pool", nowhere.claims.Len(), w.claims.Len())
	}
}
