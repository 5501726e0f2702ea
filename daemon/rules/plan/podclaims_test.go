package plan

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodClaimNames(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-web-0"}}},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
	}}}
	pod.Spec.Volumes = append(pod.Spec.Volumes, pod.Spec.Volumes[1]) // once more
	for most, want := range map[int][]string{0: nil, 1: {"data-web-0"}, 2: {"data-web-0", "web-0-scratch"}, 3: {"data-web-0", "web-0-scratch"}} {
		if got := PodClaimNames(pod, most); !slices.Equal(got, want) {
			t.Errorf("of %d: %q, want %q", most, got, want)
		}
	}
}
