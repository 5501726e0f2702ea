package claimindex

import (
	_ "embed"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

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

var knownVolumes = parse(VolumesManifest)

// VolumesIdentity is for the policy that labels volumes what Identity is for the one that labels
// claims.
func VolumesIdentity(policy *admissionv1.MutatingAdmissionPolicy, binding *admissionv1.MutatingAdmissionPolicyBinding) string {
	return identity(policy, binding, &knownVolumes)
}

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
	required, err := labels.NewRequirement(VolumeLabel, selection.In, slices.Compact(values))
	if err != nil { // the label and what nameValue returns are possible
		return labels.Everything().String()
	}
	return required.String()
}

// VolumeMissed reports whether a volume is kept for a claim, and has not the label that says so: it
// is from before the policy.
func VolumeMissed(v *corev1.PersistentVolume) bool {
	value, labelled := VolumeValue(v)
	has, is := v.Labels[VolumeLabel]
	return labelled && (!is || has != value)
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
