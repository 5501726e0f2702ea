package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// podClaims is how many claims of a pod are held, the first ones.
const podClaims = 32

// PodClaims are the names of the claims of a pod that count: the first ones, each once.
func PodClaims(pod *corev1.Pod) []string { return PodClaimNames(pod, podClaims) }

// PodClaimNames are the names of the claims that a pod uses, each once, at most so many.
func PodClaimNames(pod *corev1.Pod, most int) []string {
	var all []string
	for _, v := range pod.Spec.Volumes {
		name := ""
		switch {
		case len(all) == most:
			return all
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name = pod.Name + "-" + v.Name // pkg/controller/volume/ephemeral
		}
		if name != "" && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}
