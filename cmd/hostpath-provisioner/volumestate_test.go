package main

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// A volume whose claim is gone, and which goes with its data, is not called lost while it does.
func TestNotLostWhileItLeaves(t *testing.T) {
	now := metav1.NewTime(time.Now())
	for name, test := range map[string]struct {
		phase   corev1.PersistentVolumePhase
		policy  corev1.PersistentVolumeReclaimPolicy
		deleted *metav1.Time
		want    string
	}{
		"bound":                {corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete, nil, stateMissing},
		"bound and deleted":    {corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete, &now, stateMissing},
		"released":             {corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete, nil, "released"},
		"retained":             {corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain, nil, stateMissing},
		"retained and deleted": {corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain, &now, stateRetained},
	} {
		pv := &corev1.PersistentVolume{}
		pv.Status.Phase, pv.DeletionTimestamp = test.phase, test.deleted
		pv.Spec.PersistentVolumeReclaimPolicy = test.policy
		if got := stateOf(record.Record{Place: record.Nowhere}, pv, true); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
