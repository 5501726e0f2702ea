package binding

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// Claim is one of a pod's claims, with its class, which is of this provisioner.
type Claim struct {
	*corev1.PersistentVolumeClaim
	Class *storagev1.StorageClass
}

// MayConflict reports whether a claim can be one of several of a pod that choose their nodes
// differently: it names its node, or classes of both binding modes exist. Only then is a pod looked
// for.
func MayConflict(claim *corev1.PersistentVolumeClaim, classes []*storagev1.StorageClass) bool {
	return namesNode(claim) || bothModes(classes)
}

func namesNode(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[plan.ProvisionOnNode] != ""
}

// bothModes reports whether classes of both binding modes exist.
func bothModes(classes []*storagev1.StorageClass) bool {
	modes := map[bool]bool{}
	for _, c := range classes {
		modes[WaitsForConsumer(c)] = true
	}
	return len(modes) > 1
}

// Conflict describes how a pod's claims choose their nodes, if they do so differently; "" if they
// do not. All that name the same node, and all that wait for the pod, are fine.
func Conflict(claims []Claim) string {
	ways, parts := map[string]bool{}, []string(nil)
	for _, c := range claims {
		way := nodeChoice(c)
		ways[way] = true
		parts = append(parts, c.Name+" "+way)
	}
	if len(ways) < 2 {
		return ""
	}
	return "the claims of this pod choose their nodes differently, so that their volumes can be on different nodes: " +
		strings.Join(parts, ", ") + "; let all of them name the same node in " + plan.ProvisionOnNode + ", or none"
}

func nodeChoice(c Claim) string {
	switch node := c.Annotations[plan.ProvisionOnNode]; {
	case node != "":
		return "names node " + words.Name(node)
	case WaitsForConsumer(c.Class):
		return "waits for the pod"
	default:
		return "is provided at once on any node"
	}
}

func WaitsForConsumer(class *storagev1.StorageClass) bool {
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}
