package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// NewVolume builds the PersistentVolume for a claim whose directory is name below the pool's path.
func NewVolume(f ClaimFacts, name string) *corev1.PersistentVolume {
	claim, mode := f.Claim, corev1.PersistentVolumeFilesystem
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        VolumeName(claim),
			Labels:      VolumeLabels(f.Pool, f.Node),
			Annotations: map[string]string{},
			Finalizers:  []string{Finalizer},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:         corev1.ResourceList{corev1.ResourceStorage: requested(claim)},
			AccessModes:      claim.Spec.AccessModes,
			VolumeMode:       &mode,
			StorageClassName: ClassName(claim),
			MountOptions:     mountOptions(f),
			ClaimRef: &corev1.ObjectReference{
				Kind: "PersistentVolumeClaim", APIVersion: "v1",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
		},
	}
	mark(pv.Annotations, f)
	switch p := f.Class.ReclaimPolicy; {
	case f.Pool.Reclaim != "":
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimPolicy(f.Pool.Reclaim)
	case p != nil:
		pv.Spec.PersistentVolumeReclaimPolicy = *p
	}
	path := f.Pool.Path + "/" + name
	pv.Spec.PersistentVolumeSource = VolumeSource(f.Pool, path)
	if f.Pool.Source == SourceCSI {
		pv.Spec.PersistentVolumeSource = f.csiSource(pv.Name, path)
	}
	if f.Pool.OfOneNode() {
		pv.Spec.NodeAffinity = NodeAffinity(f.NodeLabels[HostnameLabel])
	}
	return pv
}

// VolumeSource is the source of a volume whose directory kubelet uses without a driver: local in a
// pool with that source, and else hostPath. It always writes type Directory for hostPath: with no
// type the container runtime would make a missing directory on the root disk.
func VolumeSource(pool Pool, path string) corev1.PersistentVolumeSource {
	if pool.Source == SourceLocal {
		return corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}}
	}
	directory := corev1.HostPathDirectory
	return corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &directory}}
}

// NodeAffinity is the affinity of a volume on the node whose HostnameLabel has this value.
func NodeAffinity(hostname string) *corev1.VolumeNodeAffinity {
	return affinity(HostnameLabel, hostname)
}

func affinity(label, value string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: label, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}},
		}}}}
}

// Same reports whether an object that already has the name of the one we want to create is the one
// we want: made by us on this node or for its scope, for this claim, and pointing to this
// directory. An empty string is yes.
func Same(existing, want *corev1.PersistentVolume) (difference string) {
	ref := existing.Spec.ClaimRef
	switch {
	case existing.Annotations[ProvisionedBy] != want.Annotations[ProvisionedBy]:
		return fmt.Sprintf("it was provisioned by %q", existing.Annotations[ProvisionedBy])
	case ScopeOf(existing) != ScopeOf(want):
		return fmt.Sprintf("it is of scope %q", ScopeOf(existing))
	case existing.Labels[NodeLabel] != want.Labels[NodeLabel]:
		return fmt.Sprintf("it is on node %q", existing.Labels[NodeLabel])
	case ref == nil || ref.UID != want.Spec.ClaimRef.UID:
		return "it is for another claim"
	case PathOf(existing) != PathOf(want):
		return fmt.Sprintf("it points to %q", PathOf(existing))
	default:
		return ""
	}
}

// MadeElsewhere reports whether an object that differs from the one we want to create is this
// claim's volume on another node, which took the claim over or was thought to be dead.
func MadeElsewhere(existing, want *corev1.PersistentVolume) bool {
	ref := existing.Spec.ClaimRef
	return ref != nil && ref.UID == want.Spec.ClaimRef.UID && ScopeOf(existing) == ScopeNode && ScopeOf(want) == ScopeNode &&
		existing.Annotations[ProvisionedBy] == want.Annotations[ProvisionedBy] && existing.Labels[NodeLabel] != want.Labels[NodeLabel]
}

// OthersFinalizer is a finalizer of an object that is neither Kubernetes' own nor a provisioner's,
// "" if there is none. That of the old external provisioner goes with its object: no program is
// left that would remove it.
func OthersFinalizer(v *corev1.PersistentVolume) string {
	for _, f := range v.Finalizers {
		if f != PVProtection && f != Finalizer {
			return f
		}
	}
	return ""
}

// NodeLabelValue is a node's name as a label value. Names may have 253 characters and label values
// 63 (apimachinery, util/validation), so a longer name is cut and told apart by its hash.
func NodeLabelValue(node string) string {
	if len(validation.IsValidLabelValue(node)) == 0 {
		return node
	}
	sum := sha256.Sum256([]byte(node))
	head := strings.TrimRight(node[:min(len(node), 50)], "-._")
	return head + "-" + hex.EncodeToString(sum[:6])
}

// mountOptions: kubelet refuses to start a pod on a hostPath volume that has any
// (pkg/volume/util/operationexecutor, checkMountOptionSupport). A class of ours that has them is
// refused; those of other provisioners had them ignored.
func mountOptions(f ClaimFacts) []string {
	if f.Pool.Source == SourceLocal {
		return f.Class.MountOptions
	}
	return nil
}

// ClassName is the name of a claim's class, "" if it names none. Where the annotation and the field
// differ the annotation counts, even an empty one: to ResourceQuota, the scheduler and the binder,
// too (component-helpers, storage/volume, GetPersistentVolumeClaimClass).
func ClassName(c *corev1.PersistentVolumeClaim) string {
	if class, has := c.Annotations[ClassBeta]; has {
		return class
	}
	if c.Spec.StorageClassName != nil {
		return *c.Spec.StorageClassName
	}
	return ""
}

// VolumeClass is the name of a volume's class, by the same rule (GetPersistentVolumeClass).
func VolumeClass(v *corev1.PersistentVolume) string {
	if class, has := v.Annotations[ClassBeta]; has {
		return class
	}
	return v.Spec.StorageClassName
}

// Keeps reports whether a volume object is kept for a claim, and is not the one that a provisioner
// makes for it: an administrator or the scheduler wrote the claim into it (spec.claimRef).
// kube-controller-manager binds such a claim to it, and asks no provisioner
// (pkg/controller/volume/persistentvolume, findBestMatchForClaim). The phase tells nothing: a
// volume that has another claim names that by its UID.
func Keeps(v *corev1.PersistentVolume) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && v.Name != "pvc-"+string(ref.UID)
}

// KeptFor reports whether the claimRef of a volume of which Keeps holds is for this claim. Without
// a UID it is for each claim of the name.
func KeptFor(ref corev1.ObjectReference, c *corev1.PersistentVolumeClaim) bool {
	return ref.Namespace == c.Namespace && ref.Name == c.Name && (ref.UID == "" || ref.UID == c.UID)
}

// MetadataPatch is a change of a volume object's metadata and policy. The key of a nil value is
// removed, Finalizers is the whole list, and an empty Reclaim leaves the reclaim policy as it is.
type MetadataPatch struct {
	Labels, Annotations map[string]*string
	Finalizers          []string
	Reclaim             corev1.PersistentVolumeReclaimPolicy
}
