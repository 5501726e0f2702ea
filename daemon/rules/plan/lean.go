package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// What is held of watched objects: only what the rules read. Every daemon of a cluster holds the
// claims that wait for a node, and a user who can create claims can put 256 KiB of annotations on
// each (apimachinery, api/validation, TotalAnnotationSizeLimitB), and as much again in its spec.
//
// An object that was read anew has everything, and nothing here is written back: writes are
// patches.

// claimKeys are the annotations of a claim that are read.
var claimKeys = []string{StorageProvisioner, StorageProvisionerBeta, SelectedNode, ClassBeta,
	ProvisionOnNode, MigratedTo, volumeType}

// LeanClaim is a claim with what decides about it, and no more.
func LeanClaim(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	lean := &corev1.PersistentVolumeClaim{
		ObjectMeta: leanMeta(c.ObjectMeta, claimKeys, nil),
		Spec: corev1.PersistentVolumeClaimSpec{
			VolumeName: c.Spec.VolumeName, StorageClassName: c.Spec.StorageClassName, VolumeMode: c.Spec.VolumeMode,
			VolumeAttributesClassName: c.Spec.VolumeAttributesClassName,
		},
		Status: leanStatus(c.Status),
	}
	if size, asked := c.Spec.Resources.Requests[corev1.ResourceStorage]; asked {
		lean.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: leanQuantity(size)}
	}
	for _, mode := range c.Spec.AccessModes { // the API takes any number of the four that there are
		if !slices.Contains(lean.Spec.AccessModes, mode) {
			lean.Spec.AccessModes = append(lean.Spec.AccessModes, mode)
		}
	}
	// Of the following it counts only that they are there, and of what kind; of a source, which
	// one.
	if s := c.Spec.DataSource; s != nil {
		lean.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: leanName(s.APIGroup), Kind: words.Name(s.Kind), Name: words.Name(s.Name)}
	}
	if s := c.Spec.DataSourceRef; s != nil {
		lean.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: leanName(s.APIGroup), Kind: words.Name(s.Kind), Name: words.Name(s.Name), Namespace: leanName(s.Namespace)}
	}
	if c.Spec.Selector != nil {
		lean.Spec.Selector = &metav1.LabelSelector{}
	}
	return lean
}

// leanStatus is what tells how far an expansion is.
func leanStatus(s corev1.PersistentVolumeClaimStatus) corev1.PersistentVolumeClaimStatus {
	lean := corev1.PersistentVolumeClaimStatus{Phase: s.Phase,
		CurrentVolumeAttributesClassName: s.CurrentVolumeAttributesClassName}
	if size, known := s.Capacity[corev1.ResourceStorage]; known {
		lean.Capacity = corev1.ResourceList{corev1.ResourceStorage: leanQuantity(size)}
	}
	if size, known := s.AllocatedResources[corev1.ResourceStorage]; known {
		lean.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: leanQuantity(size)}
	}
	if state, known := s.AllocatedResourceStatuses[corev1.ResourceStorage]; known {
		lean.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{
			corev1.ResourceStorage: corev1.ClaimResourceStatus(words.Name(string(state))),
		}
	}
	return lean
}

// volumeKeys and volumeLabels are those of a volume that are read.
var (
	volumeKeys = []string{ProvisionedBy, ClassBeta, ProvisionOnNode, HostPathIdentity,
		AdoptedAnnotation, HeldAnnotation, SizeAnnotation}
	volumeLabels = []string{NodeLabel, PoolLabel, ScopeLabel}
)

// LeanVolume is a volume without the fields that no rule reads. Its spec stays: administrators
// alone write volumes.
func LeanVolume(v *corev1.PersistentVolume) *corev1.PersistentVolume {
	lean := &corev1.PersistentVolume{ObjectMeta: leanMeta(v.ObjectMeta, volumeKeys, volumeLabels), Status: corev1.PersistentVolumeStatus{Phase: v.Status.Phase}}
	lean.Finalizers = slices.Clone(v.Finalizers)
	v.Spec.DeepCopyInto(&lean.Spec)
	return lean
}

// LeanClass is a class without labels, and without the annotations that are not read.
func LeanClass(c *storagev1.StorageClass) *storagev1.StorageClass {
	lean := c.DeepCopy()
	lean.ObjectMeta = leanMeta(c.ObjectMeta, []string{defaultVolumeType}, nil)
	return lean
}

// LeanNode is a node's name and labels, and what tells its host from others: its status alone, with
// images and conditions, is some KiB every few minutes.
func LeanNode(n *corev1.Node) *corev1.Node {
	lean := &corev1.Node{ObjectMeta: leanMeta(n.ObjectMeta, nil, nil)}
	lean.Labels = n.Labels
	is := n.Status.NodeInfo
	lean.Status.NodeInfo = corev1.NodeSystemInfo{
		MachineID: words.Name(is.MachineID), SystemUUID: words.Name(is.SystemUUID), BootID: words.Name(is.BootID),
	}
	return lean
}

// LeanPod is a pod's names, and those of its claims.
func LeanPod(p *corev1.Pod) *corev1.Pod {
	lean := &corev1.Pod{ObjectMeta: leanMeta(p.ObjectMeta, nil, nil)}
	for _, name := range PodClaimNames(p, podClaims) {
		of := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}
		lean.Spec.Volumes = append(lean.Spec.Volumes, corev1.Volume{
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: of},
		})
	}
	return lean
}

func leanMeta(m metav1.ObjectMeta, annotations, labels []string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		Annotations: leanMap(m.Annotations, annotations), Labels: leanMap(m.Labels, labels),
	}
}

// leanMap is what a map has of these keys. A value that is too long for any name is cut, and is
// none then.
func leanMap(all map[string]string, keys []string) map[string]string {
	lean := map[string]string{}
	for _, key := range keys {
		if value, has := all[key]; has {
			lean[key] = words.Name(value)
		}
	}
	return lean
}

func leanName(s *string) *string {
	if s == nil {
		return nil
	}
	name := words.Name(*s)
	return &name
}

// longestNumber is in bits. 2^63 has 64, and 9 digits behind the point 30 more.
const longestNumber = 128

// leanQuantity is the quantity, or in place of one that is written with very many digits another
// that nothing has room for either.
func leanQuantity(q resource.Quantity) resource.Quantity {
	if _, small := q.AsInt64(); small || q.AsDec().UnscaledBig().BitLen() <= longestNumber {
		return q.DeepCopy()
	}
	return resource.MustParse("1000000E")
}
