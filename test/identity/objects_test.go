package identity

import (
	"crypto/sha256"
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

const (
	nodeLabel  = "hostpath-provisioner/node"
	scopeLabel = "hostpath-provisioner/scope"
	poolLabel  = "hostpath-provisioner/pool"
	finalizer  = "external-provisioner.volume.kubernetes.io/finalizer"
	selected   = "volume.kubernetes.io/selected-node"
	asked      = "volume.kubernetes.io/storage-provisioner"
)

// claimUID is that of a claim which tests call short.
func claimUID(short string) types.UID {
	sum := sha256.Sum256([]byte(short))
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]))
}

// pvc is the name of the claim's volume.
func pvc(short string) string { return "pvc-" + string(claimUID(short)) }

// volume is the PersistentVolume that the daemon of a node makes for a claim.
func volume(short, node string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	directory, mode := corev1.HostPathDirectory, corev1.PersistentVolumeFilesystem
	return changed(change, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: pvc(short), Labels: map[string]string{nodeLabel: node, poolLabel: "fast"},
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "hostpath-provisioner"}, Finalizers: []string{finalizer},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:   corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			VolumeMode: &mode, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: "hostpath-provisioner",
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim",
				APIVersion: "v1", Namespace: "default", Name: "claim-" + short, UID: claimUID(short)},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/fast/" + pvc(short),
				Type: &directory}},
			NodeAffinity: affinity("host-of-" + node),
		},
	})
}

// ofCSI makes it one of the daemon's own CSI driver.
func ofCSI(change func(*corev1.CSIPersistentVolumeSource)) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		csi := &corev1.CSIPersistentVolumeSource{
			Driver: "hostpath-provisioner", VolumeHandle: pv.Name, VolumeAttributes: map[string]string{"pool": "fast",
				"path": "/srv/fast/" + pv.Name},
		}
		change(csi)
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: csi}
	}
}

// inPlaceOf makes it one of kubevirt's CSI driver that was adopted as it is, with a path.
func inPlaceOf(path string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: "kubevirt.io.hostpath-provisioner", VolumeHandle: pv.Name, FSType: "ext4", VolumeAttributes: map[string]string{"storagePool": "local"},
		}}
		pv.Annotations["pv.kubernetes.io/provisioned-by"], pv.Annotations["hostpath-provisioner/path"] = "kubevirt.io.hostpath-provisioner", path
	}
}

// scoped makes it a volume of a pool that is not one node's.
func scoped(scope, path string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		pv.Labels = map[string]string{scopeLabel: scope, poolLabel: "pool"}
		pv.Spec.NodeAffinity = nil
		pv.Spec.HostPath.Path = path
	}
}

func at(path string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) { pv.Spec.HostPath.Path = path }
}

func ofClass(class string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = class }
}

func ofLocal(path string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}}
	}
}

func withOptions(all ...string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = all }
}

func annotated(key, value string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) { pv.Annotations[key] = value }
}

func affinity(hostname string) *corev1.VolumeNodeAffinity {
	return cluster.Affinity(corev1.LabelHostname, hostname)
}

// event is what the daemon of a node reports about an object.
func event(name, node, kind, about string, change ...func(*corev1.Event)) *corev1.Event {
	namespace := metav1.NamespaceDefault
	return changed(change, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		InvolvedObject: corev1.ObjectReference{Kind: kind, APIVersion: "v1",
			Namespace: map[bool]string{true: "", false: namespace}[kind == "Node" ||
				kind == "PersistentVolume"], Name: about},
		Type: corev1.EventTypeWarning, Reason: "NotMounted", Message: "27 MiB (2 %) are free", Count: 1, FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
		Source:              corev1.EventSource{Component: "hostpath-provisioner", Host: node},
		ReportingController: "hostpath-provisioner", ReportingInstance: node,
	})
}

// changed is an object with changes.
func changed[T any](change []func(T), o T) T {
	for _, f := range change {
		f(o)
	}
	return o
}

func ofKubelet(e *corev1.Event) { e.Source.Component, e.ReportingController = "kubelet", "kubelet" }

// lease is that of a shared pool, in a node's name.
func lease(pool, node string, change ...func(*coordinationv1.Lease)) *coordinationv1.Lease {
	holder, seconds := node+"_01234567", int32(15)
	return changed(change, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: account, Name: pool + ".hostpath-provisioner",
			Labels: map[string]string{poolLabel: pool}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder,
			LeaseDurationSeconds: &seconds},
	})
}

func calledTombstone(l *coordinationv1.Lease) { l.Labels["hostpath-provisioner/tombstone"] = "delete" }

func givenUp(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil }

func anotherProgram(l *coordinationv1.Lease) { l.Name, l.Labels = "another.program", nil }

// ofNode is the lease that says which host has a node's name.
func ofNode(node, holder string, change ...func(*coordinationv1.Lease)) *coordinationv1.Lease {
	l := lease("", holder)
	l.Name = "hostpath-provisioner-node." + node
	l.Labels = map[string]string{nodeLabel: node}
	return changed(change, l)
}

// filled gives a lease a state of more than a reader takes.
func filled(l *coordinationv1.Lease) {
	l.Annotations = map[string]string{
		"state.hostpath-provisioner/hostpath-provisioner": strings.Repeat("x", 4097),
	}
}

// tombstone tells that a volume of scope every-node went.
func tombstone(name, node string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: account, Name: name,
			Labels: map[string]string{"hostpath-provisioner/tombstone": "delete"}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &node},
	}
}

// capacity is what a class can get on a node.
func capacity(
	name, node string, change ...func(*storagev1.CSIStorageCapacity),
) *storagev1.CSIStorageCapacity {
	size := resource.MustParse("1Gi")
	labels := map[string]string{"csi.storage.k8s.io/managed-by": "hostpath-provisioner",
		"csi.storage.k8s.io/drivername": "hostpath-provisioner"}
	if node != "" {
		labels[nodeLabel] = node
	}
	return changed(change, &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Namespace: account, Name: name,
			Labels: labels}, StorageClassName: "hostpath-provisioner", Capacity: &size, MaximumVolumeSize: &size,
		NodeTopology: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelHostname,
			Operator: metav1.LabelSelectorOpIn, Values: []string{strings.TrimSuffix("host-of-"+node,
				"-of-")}}}},
	})
}

// ofSilent is the capacity for nodes that publish nothing.
func ofSilent(
	name, size, most string, change ...func(*storagev1.CSIStorageCapacity),
) *storagev1.CSIStorageCapacity {
	c := capacity(name, "")
	room, largest := resource.MustParse(size), resource.MustParse(most)
	c.Capacity, c.MaximumVolumeSize = &room, &largest
	return changed(change, c)
}
