//go:build nodes

package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

const (
	kubevirtDriver = "kubevirt.io.hostpath-provisioner"
	kubevirtLabel  = "topology.hostpath.csi/node"
)

// inPlaceOfKubevirt has the service serve kubevirt's driver as well, whose CSIDriver, class and
// volume are there.
func (c *csiNode) inPlaceOfKubevirt(ctx context.Context, w *environment) {
	w.must(w.cluster.Apply(ctx, []byte(kubevirtCSIDriver)), "creating kubevirt's CSIDriver")
	configureInPlace(ctx, w)
	c.stop(w)
	theirs := &csiNode{driver: kubevirtDriver, h: w.a}
	theirs.listen(w)
	c.sockets = append(c.sockets, theirs.sockets...)
	c.start(w)
	w.must(eventually(ctx, "the driver's registration", func() error { return theirs.labelled(ctx, w) }), "waiting for kubelet")

	pv := kubevirtVolume(ctx, w)
	pod := w.createPod(ctx, w.pod("vm", "kubevirt", nil))
	w.told(ctx, pod, "FailedMount", "it has to be adopted first")
	w.onHost(w.a, 0, "adopt", "fast")
	w.ready(ctx, "vm")
	w.onHost(w.a, 0, "adopt", "--undo", "fast")
	w.onHost(w.a, 0, "adopt", "fast")
	now, err := w.client.CoreV1().PersistentVolumes().Get(ctx, pv.Name, metav1.GetOptions{})
	w.must(err, "reading the volume")
	if now.UID != pv.UID || now.Spec.CSI == nil || now.Spec.CSI.Driver != kubevirtDriver {
		w.Fatalf("the object became %+v", now.Spec)
	}
	w.deleteClaim(ctx, "kubevirt", "vm")
}

// configureInPlace has the daemon serve kubevirt's classes and volumes.
func configureInPlace(ctx context.Context, w *environment) {
	w.configure(w.a, func(config string) string {
		return fmt.Sprintf("aliases = [%[1]q]\ncsi_drivers = [%[1]q]\n%[2]s", kubevirtDriver, config)
	})
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

const kubevirtCSIDriver = `apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: kubevirt.io.hostpath-provisioner}
spec: {attachRequired: false, podInfoOnMount: true, volumeLifecycleModes: [Persistent, Ephemeral]}
`

// kubevirtVolume is the volume, bound to its claim.
func kubevirtVolume(ctx context.Context, w *environment) *corev1.PersistentVolume {
	dir := w.a.path(poolDir, "pvc-of-kubevirt")
	w.must(errors.Join(os.Mkdir(dir, 0o777), os.Chmod(dir, 0o777)), "making the volume")
	w.must(w.cluster.Apply(ctx, cluster.Kubevirt(w.namespace, "kubevirt", w.a.name,
		storagev1.VolumeBindingImmediate, corev1.PersistentVolumeReclaimDelete, "storagePool: local",
	)), "creating kubevirt's volume")
	return w.bound(ctx, "kubevirt")
}
