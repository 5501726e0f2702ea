package plan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A volume is kept for a claim by the claim's name, or by name and UID. No claim's own volume is,
// nor one whose claim was another of the same name.
func TestKeptFor(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data-0", UID: "u-1"}}
	for name, c := range map[string]struct {
		volume, namespace, claim, uid string
		phase                         corev1.PersistentVolumePhase
		kept                          bool
	}{
		"by name":                           {"kept", "ns", "data-0", "", corev1.VolumeAvailable, true},
		"by name, not yet looked at":        {"kept", "ns", "data-0", "", corev1.VolumePending, true},
		"a released one that is kept again": {"pvc-u-0", "ns", "data-0", "", corev1.VolumeReleased, true},
		"by name and UID":                   {"kept", "ns", "data-0", "u-1", corev1.VolumeAvailable, true},
		"about to be bound":                 {"kept", "ns", "data-0", "u-1", corev1.VolumeBound, true},
		"its own":                           {"pvc-u-1", "ns", "data-0", "u-1", corev1.VolumeBound, false},
		"of an earlier claim of the name":   {"pvc-u-0", "ns", "data-0", "u-0", corev1.VolumeReleased, false},
		"kept for that earlier one":         {"kept", "ns", "data-0", "u-0", corev1.VolumeReleased, false},
		"of another name":                   {"kept", "ns", "data-1", "", corev1.VolumeAvailable, false},
		"of another namespace":              {"kept", "n2", "data-0", "", corev1.VolumeAvailable, false},
	} {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: c.volume}, Status: corev1.PersistentVolumeStatus{Phase: c.phase}}
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: c.namespace, Name: c.claim, UID: types.UID(c.uid)}
		if got := Keeps(pv) && KeptFor(*pv.Spec.ClaimRef, claim); got != c.kept {
			t.Errorf("%s: kept is %t", name, got)
		}
	}
	if Keeps(&corev1.PersistentVolume{}) {
		t.Error("a volume without claimRef is kept")
	}
}
