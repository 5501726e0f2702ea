//go:build nodes

package nodes

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	kubevirtDriver = "kubevirt.io.hostpath-provisioner"
	kubevirtLabel  = "topology.hostpath.csi/node"
)

// inPlaceOfKubevirt has the service serve kubevirt's driver as well, whose CSIDriver, class and
// volume are there.
func (c *csiNode) inPlaceOfKubevirt(ctx context.Context, w *environment) {
	no, yes, once := false, true, "kubevirt"
	_, err := w.client.StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: kubevirtDriver}, Spec: storagev1.CSIDriverSpec{
			AttachRequired: &no, PodInfoOnMount: &yes, VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral},
		},
	}, metav1.CreateOptions{})
	w.must(err, "creating kubevirt's CSIDriver")
	configureInPlace(ctx, w)
	w.must(c.service.end(syscall.SIGTERM, 20*time.Second), "stopping the service")
	theirs := &csiNode{driver: kubevirtDriver, h: w.a}
	theirs.listen(w)
	c.sockets = append(c.sockets, theirs.sockets...)
	c.start(w)
	w.must(eventually(ctx, "the driver's registration", func() error { return theirs.labelled(ctx, w) }), "waiting for kubelet")

	pv := kubevirtVolume(ctx, w, once)
	pod := w.createPod(ctx, w.pod("vm", once, nil))
	if event := w.event(ctx, pod, "FailedMount"); !strings.Contains(event.Message, "it has to be adopted first") {
		w.Fatalf("the event does not say that the volume has to be adopted")
	}
	w.onHost(w.a, 0, "adopt", "fast")
	w.ready(ctx, "vm")
	w.onHost(w.a, 0, "adopt", "--undo", "fast")
	w.onHost(w.a, 0, "adopt", "fast")
	now, err := w.client.CoreV1().PersistentVolumes().Get(ctx, pv.Name, metav1.GetOptions{})
	w.must(err, "reading the volume")
	if now.UID != pv.UID || now.Spec.CSI == nil || now.Spec.CSI.Driver != kubevirtDriver {
		w.Fatalf("the object became %+v", now.Spec)
	}
	w.deleteClaim(ctx, once, "vm")
}

// configureInPlace has the daemon serve kubevirt's classes and volumes.
func configureInPlace(ctx context.Context, w *environment) {
	config, err := os.ReadFile(w.a.daemon.Path("etc", "config.toml"))
	w.must(err, "reading the configuration")
	w.must(w.a.daemon.Configure(fmt.Sprintf("aliases = [%q]\ncsi_drivers = [%q]\n%s", kubevirtDriver, kubevirtDriver, config)), "configuring the daemon")
	w.withoutDaemonFor(ctx, func() {})
}

// labelled reports whether kubelet has the driver, and put its label on the node.
func (c *csiNode) labelled(ctx context.Context, w *environment) error {
	if err := c.registered(ctx, w); err != nil {
		return err
	}
	node, err := w.client.CoreV1().Nodes().Get(ctx, w.a.name, metav1.GetOptions{})
	if err == nil && node.Labels[kubevirtLabel] != w.a.name {
		err = fmt.Errorf("the node's labels are %q", node.Labels)
	}
	return err
}

// kubevirtVolume is a bound claim as kubevirt's driver and its provisioner leave it.
func kubevirtVolume(ctx context.Context, w *environment, name string) *corev1.PersistentVolume {
	policy := storagev1.VolumeBindingImmediate
	_, err := w.client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: kubevirtDriver, VolumeBindingMode: &policy, Parameters: map[string]string{"storagePool": "local"},
	}, metav1.CreateOptions{})
	w.must(err, "creating kubevirt's class")
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("8Mi")}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &name, VolumeName: "pvc-of-kubevirt", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}
	claim, err = w.client.CoreV1().PersistentVolumeClaims(w.namespace).Create(ctx, claim, metav1.CreateOptions{})
	w.must(err, "creating a claim")
	dir := w.a.path(poolDir, "pvc-of-kubevirt")
	w.must(os.Mkdir(dir, 0o777), "making the volume")
	w.must(os.Chmod(dir, 0o777), "making the volume")
	pv, err := w.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-of-kubevirt", Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": kubevirtDriver},
			Finalizers: []string{"external-provisioner.volume.kubernetes.io/finalizer"},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: claim.Spec.AccessModes, StorageClassName: name, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: w.namespace, Name: name, UID: claim.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: kubevirtDriver, VolumeHandle: "pvc-of-kubevirt", VolumeAttributes: map[string]string{"storagePool": "local"},
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: kubevirtLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{w.a.name}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	w.must(err, "creating kubevirt's volume")
	return pv
}
