package cluster

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NewNamespace makes a namespace with a random name that begins with prefix,
// and waits until Pods can be created in it.
func (c *Cluster) NewNamespace(ctx context.Context, prefix string) (string, error) {
	namespace, err := c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create a namespace %q: %w", prefix+"-", err)
	}
	_, err = WaitFor(ctx, c.client.CoreV1().ServiceAccounts(namespace.Name), "default",
		func(*corev1.ServiceAccount) bool { return true })
	return namespace.Name, err
}

// StorageClass is one with policy Delete. It is not created yet: change what
// should differ.
func StorageClass(name, provisioner string, mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
	policy := corev1.PersistentVolumeReclaimDelete
	return &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: name},
		Provisioner:       provisioner,
		ReclaimPolicy:     &policy,
		VolumeBindingMode: &mode,
	}
}

// Claim is a ReadWriteOnce claim of a size such as "1Gi", not created yet. A
// size that is not a quantity panics.
func Claim(namespace, name, class, size string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			},
		},
	}
}

// Pod is one that mounts each of the claims at /volumes/CLAIM, not created
// yet. Its image exists nowhere: it is for being scheduled.
//
// It has no grace period, because the API server deletes such a Pod at once.
// Any other would wait for a kubelet to say that the Pod has ended.
func Pod(namespace, name string, claims ...string) *corev1.Pod {
	var grace int64
	container := corev1.Container{Name: "pause", Image: "pause", ImagePullPolicy: corev1.PullNever}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: &grace},
	}
	for _, claim := range claims {
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{
			Name: claim, MountPath: "/volumes/" + claim,
		})
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
			Name: claim,
			VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			},
		})
	}
	pod.Spec.Containers = []corev1.Container{container}
	return pod
}

// Affinity keeps a volume to nodes of which a label has one of these values.
func Affinity(key string, values ...string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}},
	}}}}
}

// OnNodes has a pod run on these nodes alone, on any if there are none.
func OnNodes(nodes ...string) *corev1.Affinity {
	terms := make([]corev1.NodeSelectorTerm, 0, len(nodes))
	for _, node := range nodes { // one value a term: pkg/apis/core/validation
		terms = append(terms, corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{
			Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node},
		}}})
	}
	if len(terms) == 0 {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: terms,
		},
	}}
}

// PathOf is the path that a volume object says, whatever its source.
func PathOf(v *corev1.PersistentVolume) string {
	switch {
	case v.Spec.HostPath != nil:
		return v.Spec.HostPath.Path
	case v.Spec.Local != nil:
		return v.Spec.Local.Path
	case v.Spec.CSI != nil:
		return v.Spec.CSI.VolumeAttributes["path"]
	}
	return ""
}

// Kubevirt are a class, a claim of it and its volume on a node, as kubevirt's driver and its
// provisioner leave them. Class and claim have the same name; attributes are those of the class and
// of the volume, as YAML has them.
func Kubevirt(
	namespace, name, node string, mode storagev1.VolumeBindingMode,
	policy corev1.PersistentVolumeReclaimPolicy, attributes string,
) []byte {
	return []byte(strings.NewReplacer(
		"NAMESPACE", namespace, "NAME", name, "NODE", node,
		"MODE", string(mode), "POLICY", string(policy), "ATTRIBUTES", attributes,
	).Replace(kubevirtObjects))
}

const kubevirtObjects = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: NAME}
provisioner: kubevirt.io.hostpath-provisioner
volumeBindingMode: MODE
parameters: {ATTRIBUTES}
---
apiVersion: v1
kind: PersistentVolume
metadata:
  name: pvc-of-kubevirt
  annotations: {pv.kubernetes.io/provisioned-by: kubevirt.io.hostpath-provisioner}
  finalizers: [external-provisioner.volume.kubernetes.io/finalizer]
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 8Mi}
  storageClassName: NAME
  persistentVolumeReclaimPolicy: POLICY
  claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, namespace: NAMESPACE, name: NAME}
  csi:
    driver: kubevirt.io.hostpath-provisioner
    volumeHandle: pvc-of-kubevirt
    volumeAttributes: {ATTRIBUTES}
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{key: topology.hostpath.csi/node, operator: In, values: [NODE]}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: NAME, namespace: NAMESPACE}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 8Mi}}
  storageClassName: NAME
  volumeName: pvc-of-kubevirt
`
