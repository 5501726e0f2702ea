package claimindex

import (
	_ "embed"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

const (
	// VolumesName is that of the policy that labels volumes, and of its binding.
	VolumesName = "hostpath-provisioner-volumes"
	// VolumeLabel is on each volume that is kept for a claim (plan.Keeps). Its value is the claim's
	// name, "" where that cannot be a label's value.
	VolumeLabel = "hostpath-provisioner/kept-for"
)

// VolumesManifest is the policy that labels volumes and its binding in YAML. It is as complete as
// Manifest is.
//
//go:embed volumes.yaml
var VolumesManifest string

// VolumeValue returns the value that the policy writes on a volume. labelled reports whether it
// writes one.
func VolumeValue(v *corev1.PersistentVolume) (value string, labelled bool) {
	if !plan.Keeps(v) {
		return "", false
	}
	return nameValue(v.Spec.ClaimRef.Name), true
}

// VolumeSelector selects the labelled volumes that may be kept for claims of these names.
func VolumeSelector(claims []string) string {
	values := []string{""}
	for _, name := range claims {
		values = append(values, nameValue(name))
	}
	slices.Sort(values)
	return selector(VolumeLabel, slices.Compact(values)).String()
}

// VolumeMissed reports whether a volume is kept for a claim, and has not the label that says so: it
// is from before the policy.
func VolumeMissed(v *corev1.PersistentVolume) bool {
	_, labelled := VolumeValue(v)
	return labelled && !VolumeWritten(v)
}

// VolumeWritten reports whether a volume has the label that the policy writes, and none where it
// writes none.
func VolumeWritten(v *corev1.PersistentVolume) bool {
	value, labelled := VolumeValue(v)
	return written(v.Labels, VolumeLabel, value, labelled)
}

func nameValue(claim string) string {
	if len(claim) > 63 || !possible.MatchString(claim) {
		return ""
	}
	return claim
}
