package main

import (
	"cmp"
	"path"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
)

const kubeletRoot = "/var/lib/kubelet"

// kubelet calls a driver of the machine, and has the directories of its pods there.
type kubelet struct {
	*environment
	node spec.NodeClient
}

func (e *environment) kubelet(driver string) kubelet {
	return kubelet{e, spec.NewNodeClient(e.connect(path.Join(kubeletRoot, "plugins", driver, "csi.sock")))}
}

// target is where a pod has a volume.
func target(pod string, v csinode.Volume) string {
	return path.Join(kubeletRoot, "pods", pod, "volumes/kubernetes.io~csi", cmp.Or(v.Name, v.PV), "mount")
}

// publish makes the pod's directory, and has the volume mounted in it.
func (k kubelet) publish(pod string, v csinode.Volume) error {
	k.sh("mkdir -p " + path.Dir(target(pod, v)))
	return k.askToPublish(pod, v)
}

// askToPublish is the call alone, for another goroutine than that of the steps.
func (k kubelet) askToPublish(pod string, v csinode.Volume) error {
	_, err := k.node.NodePublishVolume(k.ctx, &spec.NodePublishVolumeRequest{
		VolumeId: v.PV, TargetPath: target(pod, v), Readonly: v.ReadOnly, VolumeContext: v.Attributes,
		VolumeCapability: &spec.VolumeCapability{
			AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
			AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		},
	}, grpc.WaitForReady(true))
	return err
}

// unpublish has a volume unmounted, with its directory, and removes the pod's as kubelet does.
func (k kubelet) unpublish(pod string, v csinode.Volume) error {
	_, err := k.node.NodeUnpublishVolume(k.ctx, &spec.NodeUnpublishVolumeRequest{VolumeId: v.PV, TargetPath: target(pod, v)}, grpc.WaitForReady(true))
	if err == nil {
		k.sh("test ! -e " + target(pod, v) + "; find " + path.Join(kubeletRoot, "pods", pod) + " -depth -type d -delete")
	}
	return err
}
