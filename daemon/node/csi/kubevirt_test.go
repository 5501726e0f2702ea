package csi

import (
	"os"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// adopted is a volume as kubevirt's driver made it and adopt has recorded it.
func (h *host) adopted(pool, pv, provisioner string) {
	h.Helper()
	h.must(os.Mkdir(h.at(pool+"/"+pv), 0o777))
	h.must(os.WriteFile(h.at(pool+"/"+pv+"/of-"+pv), nil, 0o600))
	store, id := h.store(pool)
	h.must(store.Adopt(h.Context(), id, record.Record{
		PV: pv, Namespace: "default", Claim: "data", ClaimUID: "u-" + pv, Directory: pv, Provisioner: provisioner, Source: plan.SourceCSI, Requested: 1 << 20,
	}))
}

// publishTheirs asks as kubelet does for a volume of kubevirt's driver, whose object names its own
// pool and no path.
func (h *host) publishTheirs(pv, pool, pod string) error {
	r := h.request("fast", pv)
	r.VolumeContext = map[string]string{"storagePool": pool, "storage.kubernetes.io/csiProvisionerIdentity": "1-2-" + plan.KubevirtCSI}
	r.TargetPath = h.target(pod)
	_, err := h.theirs.NodePublishVolume(h.Context(), r)
	return err
}

// A volume of kubevirt's driver that was adopted is found by its record, in whichever pool. A pod
// that the driver itself had mounted it for goes on, and is unmounted like the others.
func TestKubevirtsVolumes(t *testing.T) {
	h := newHost(t, plan.KubevirtCSI)
	h.adopted("slow", "pvc-9", plan.KubevirtCSI)
	h.must(os.Mkdir(h.target("u-1"), 0o750))
	h.run("mount", "--bind", h.at("slow/pvc-9"), h.target("u-1")) // as the driver does
	h.want(h.publishTheirs("pvc-9", "slow", "u-1"), codes.OK, "")
	h.want(h.publishTheirs("pvc-9", "legacy", "u-2"), codes.OK, "")
	for _, pod := range []string{"u-1", "u-2"} {
		if _, err := os.Stat(h.target(pod) + "/of-pvc-9"); err != nil {
			t.Error(err)
		}
	}
	if all := h.mounted(); len(all) != 2 {
		t.Errorf("%q", all)
	}
	for _, pod := range []string{"u-1", "u-2"} {
		_, err := h.theirs.NodeUnpublishVolume(t.Context(), &spec.NodeUnpublishVolumeRequest{VolumeId: "pvc-9", TargetPath: h.target(pod)})
		h.want(err, codes.OK, "")
	}
	if all := h.mounted(); len(all) != 0 {
		t.Errorf("%q", all)
	}
	if _, err := os.Stat(h.at("slow/pvc-9/of-pvc-9")); err != nil {
		t.Error(err)
	}
}

func TestKubevirtsRefused(t *testing.T) {
	h := newHost(t, plan.KubevirtCSI)
	h.adopted("slow", "pvc-9", plan.KubevirtCSI)
	h.must(os.Mkdir(h.at("fast/pvc-8"), 0o777))
	h.want(h.publishTheirs("pvc-8", "fast", "u-1"), codes.NotFound, "it has to be adopted first")
	h.want(h.publishTheirs("pvc-1", "fast", "u-1"), codes.InvalidArgument, `of provisioner ""`)
	h.want(h.publish(func(r *spec.NodePublishVolumeRequest) { r.VolumeId = "pvc-9" }), codes.NotFound, "not recorded") // by our own driver
	h.run("umount", h.at("slow"))
	h.want(h.publishTheirs("pvc-9", "slow", "u-1"), codes.FailedPrecondition, `pool "slow" is closed: `)
	if all := h.mounted(); len(all) != 0 {
		t.Errorf("%q", all)
	}
}

// kubelet puts the driver's label on the node again, which the affinity of its volumes names.
func TestKubevirtsNode(t *testing.T) {
	h := newHost(t, plan.KubevirtCSI)
	node, err := h.theirs.NodeGetInfo(t.Context(), &spec.NodeGetInfoRequest{})
	if err != nil || node.NodeId != "node-a" || node.AccessibleTopology.GetSegments()["topology.hostpath.csi/node"] != "node-a" {
		t.Errorf("%v, %v", node, err)
	}
	info, err := h.theirIdent.GetPluginInfo(t.Context(), &spec.GetPluginInfoRequest{})
	if err != nil || info.Name != "kubevirt.io.hostpath-provisioner" {
		t.Errorf("%v, %v", info, err)
	}
	can, err := h.theirIdent.GetPluginCapabilities(t.Context(), &spec.GetPluginCapabilitiesRequest{})
	if err != nil || len(can.Capabilities) != 1 {
		t.Errorf("%v, %v", can, err)
	}
}
