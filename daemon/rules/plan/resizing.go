package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What an expansion writes in a claim's status, as other controllers and kubectl read it (KEP-1790;
// external-resizer, pkg/controller/resize_status.go; kubernetes, pkg/volume/util/resize_util.go).

// StorageResizer is the annotation that names the controller that expands a claim
// (pkg/volume/util/types, VolumeResizerKey).
const StorageResizer = "volume.kubernetes.io/storage-resizer"

// ClaimStatus is a change of a claim's status. What it does not name stays.
type ClaimStatus struct {
	Capacity  *resource.Quantity         // nil leaves it
	Allocated *resource.Quantity         // nil leaves it
	State     corev1.ClaimResourceStatus // of the expansion, "" for none
	Set       []corev1.PersistentVolumeClaimCondition
	Remove    []corev1.PersistentVolumeClaimConditionType
	Resizer   string // the value of StorageResizer, "" leaves it
}

// BegunStatus says that the claim is being expanded to this size. kubelet leaves a claim in this
// state alone (pkg/volume/util/operationexecutor, runPreCheck).
func BegunStatus(f ExpandFacts, now time.Time) ClaimStatus {
	target := f.Target()
	return ClaimStatus{
		Allocated: &target, State: corev1.PersistentVolumeClaimControllerResizeInProgress, Resizer: f.Volume.Annotations[ProvisionedBy],
		Set: []corev1.PersistentVolumeClaimCondition{resizing(corev1.PersistentVolumeClaimResizing, "", now)},
		Remove: []corev1.PersistentVolumeClaimConditionType{
			corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError, corev1.PersistentVolumeClaimFileSystemResizePending,
		},
	}
}

// InfeasibleStatus says why the claim cannot have this size. In this state its user may lower the
// request again, to more than the capacity (RecoverVolumeExpansionFailure). It has what the claim
// requests, which quotas count, and not what a hand wrote on the volume object. A size that is no
// number of bytes is not repeated.
func InfeasibleStatus(f ExpandFacts, message string, now time.Time) ClaimStatus {
	s := ClaimStatus{
		State: corev1.PersistentVolumeClaimControllerResizeInfeasible, Resizer: f.Volume.Annotations[ProvisionedBy],
		Set: []corev1.PersistentVolumeClaimCondition{
			resizing(corev1.PersistentVolumeClaimResizing, "", now), resizing(corev1.PersistentVolumeClaimControllerResizeError, message, now),
		},
	}
	if want := requested(f.Claim); exactly(want) {
		s.Allocated = &want
	}
	return s
}

// DoneStatus says that the claim has this size. Its allocatedResources stay: with them kubelet sees
// that an expansion of a local volume has nothing to do, and without them it takes the controller
// for one of an earlier version and expands once more (pkg/volume/util/operationexecutor,
// checkForRecoveryFromExpansion).
func DoneStatus(size resource.Quantity) ClaimStatus {
	return ClaimStatus{Capacity: &size, Allocated: &size, Remove: []corev1.PersistentVolumeClaimConditionType{
		corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimControllerResizeError,
		corev1.PersistentVolumeClaimNodeResizeError, corev1.PersistentVolumeClaimFileSystemResizePending,
	}}
}

// Noted reports whether the claim's status has an expansion to Target in this state already.
func (f ExpandFacts) Noted(state corev1.ClaimResourceStatus) bool {
	status, target := f.Claim.Status, f.Target()
	if state == corev1.PersistentVolumeClaimControllerResizeInfeasible {
		target = requested(f.Claim)
	}
	if status.AllocatedResourceStatuses[corev1.ResourceStorage] != state {
		return false
	}
	if !exactly(target) {
		return true
	}
	allocated, known := status.AllocatedResources[corev1.ResourceStorage]
	return known && !larger(allocated, target) && !larger(target, allocated)
}

// Stateless reports whether the claim's status has nothing of an expansion but conditions. An API
// server before Kubernetes 1.32 drops all else without an error
// (pkg/api/persistentvolumeclaim, DropDisabledFieldsFromStatus).
func (f ExpandFacts) Stateless() bool {
	return len(f.Claim.Status.AllocatedResourceStatuses)+len(f.Claim.Status.AllocatedResources) == 0
}

func exactly(q resource.Quantity) bool {
	_, exact := Bytes(q)
	return exact
}

func resizing(kind corev1.PersistentVolumeClaimConditionType, message string, now time.Time) corev1.PersistentVolumeClaimCondition {
	return corev1.PersistentVolumeClaimCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now), Message: message}
}
