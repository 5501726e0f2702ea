package plan

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/words"
)

// PodClaim is one of a pod's claims whose class is ours.
type PodClaim struct {
	Claim *corev1.PersistentVolumeClaim
	Class *storagev1.StorageClass
}

// PodClaimNames are the claims that a pod uses, each once, at most so many.
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

// MayMix says whether a claim can be one of several of a pod that choose their nodes differently: it
// names its node, or classes of both binding modes exist. Only then is a pod looked for.
func MayMix(claim *corev1.PersistentVolumeClaim, classes []*storagev1.StorageClass) bool {
	return claim.Annotations[ProvisionOnNode] != "" || ClassesMix(classes)
}

// ClassesMix reports whether classes of both binding modes exist.
func ClassesMix(classes []*storagev1.StorageClass) bool {
	modes := map[bool]bool{}
	for _, c := range classes {
		modes[waitsForConsumer(c)] = true
	}
	return len(modes) > 1
}

// MixedBinding says how a pod's claims choose their nodes, if they do so differently: then their
// volumes can be on different nodes, and the pod on none (kubevirt's documentation warns of it). All
// that name the same node, and all that wait for the pod, are fine.
func MixedBinding(claims []PodClaim) string {
	ways, parts := map[string]bool{}, []string(nil)
	for _, c := range claims {
		way := howChosen(c)
		ways[way] = true
		parts = append(parts, c.Claim.Name+" "+way)
	}
	if len(ways) < 2 {
		return ""
	}
	return "the claims of this pod choose their nodes differently, so that their volumes can be on different nodes: " +
		strings.Join(parts, ", ") + "; let all of them name the same node in " + ProvisionOnNode + ", or none"
}

func howChosen(c PodClaim) string {
	switch node := c.Claim.Annotations[ProvisionOnNode]; {
	case node != "":
		return "names node " + words.Name(node)
	case waitsForConsumer(c.Class):
		return "waits for the pod"
	default:
		return "is provided at once on any node"
	}
}
