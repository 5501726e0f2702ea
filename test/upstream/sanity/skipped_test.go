package sanity

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
)

// left are cases that csi-sanity does not run.
type left struct {
	capability string // that they are of, of the controller where nothing else is said
	why        string // the driver and the daemon do not have it
	said       string // what csi-sanity says of them
	cases      []string
}

// skipped has each case that is not run, of 103 (docs/dev/decisions.md).
var skipped = []left{
	{"PUBLISH_UNPUBLISH_VOLUME", "there is nothing to attach: attachRequired is false", "ControllerPublishVolume not supported", []string{
		"Controller Service [Controller Server] ControllerPublishVolume should fail when no node id is provided",
		"Controller Service [Controller Server] ControllerPublishVolume should fail when no volume capability is provided",
		"Controller Service [Controller Server] ControllerPublishVolume should fail when no volume id is provided",
		"Controller Service [Controller Server] ControllerPublishVolume should fail when publishing more volumes than the node max attach limit",
		"Controller Service [Controller Server] ControllerPublishVolume should fail when the node does not exist",
		"Controller Service [Controller Server] ControllerPublishVolume should fail when the volume does not exist",
		"Controller Service [Controller Server] ControllerPublishVolume should fail when the volume is already published but is incompatible",
	}},
	{"PUBLISH_UNPUBLISH_VOLUME", "there is nothing to attach: attachRequired is false", "Controller Publish, UnpublishVolume not supported", []string{
		"Controller Service [Controller Server] volume lifecycle should be idempotent",
		"Controller Service [Controller Server] volume lifecycle should work",
	}},
	{"PUBLISH_UNPUBLISH_VOLUME", "there is nothing to attach: attachRequired is false", "ControllerUnpublishVolume not supported", []string{
		"Controller Service [Controller Server] ControllerUnpublishVolume should fail when no volume id is provided",
	}},
	{"STAGE_UNSTAGE_VOLUME", "the directory is mounted for each pod, and nothing for all pods of a node before", "NodeStageVolume not supported", []string{
		"Node Service NodeStageVolume should fail when no staging target path is provided",
		"Node Service NodeStageVolume should fail when no volume capability is provided",
		"Node Service NodeStageVolume should fail when no volume id is provided",
	}},
	{"STAGE_UNSTAGE_VOLUME", "the directory is mounted for each pod, and nothing for all pods of a node before", "NodeUnstageVolume not supported", []string{
		"Node Service NodeUnstageVolume should fail when no staging target path is provided",
		"Node Service NodeUnstageVolume should fail when no volume id is provided",
	}},
	{"EXPAND_VOLUME of the node", "the daemon sets the limit, and no filesystem has to grow", "NodeExpandVolume not supported", []string{
		"Node Service NodeExpandVolume should fail when no volume id is provided",
		"Node Service NodeExpandVolume should fail when no volume path is provided",
		"Node Service NodeExpandVolume should fail when volume is not found",
		"Node Service NodeExpandVolume should work if node-expand is called after node-publish",
	}},
	{"MODIFY_VOLUME", "a claim with a VolumeAttributesClass is refused", "Modify volume not supported", []string{
		"Controller Service [Controller Server] CreateVolume should create volume with a volume attribute class",
	}},
	{"MODIFY_VOLUME", "a claim with a VolumeAttributesClass is refused", "Modify Volume not supported", []string{
		"Controller Service [Controller Server] CreateVolume should not create volume with an invalid volume attribute class",
	}},
	{"MODIFY_VOLUME", "a claim with a VolumeAttributesClass is refused", "ControllerModifyVolume not supported", []string{
		"ModifyVolume [Controller Server] should fail if no volume id is given",
		"ModifyVolume [Controller Server] should fail if specified mutable parameters are not supported by the volume",
		"ModifyVolume [Controller Server] should fail if volume does not exist",
		"ModifyVolume [Controller Server] should fail to modify a volume created with a volume attribute class if new mutable parameters are not supported by volume",
		"ModifyVolume [Controller Server] should modify a volume created with a volume attribute class",
		"ModifyVolume [Controller Server] should modify a volume created without a volume attribute class",
	}},
	{"GROUP_CONTROLLER_SERVICE", "snapshots of groups are not made", "GroupControllerService not supported", []string{
		"GroupController Service [GroupController Server] GroupControllerGetCapabilities should return appropriate capabilities",
		"GroupController Service [GroupController VolumeGroupSnapshots] CreateVolumeGroupSnapshot should fail when no name is provided",
		"GroupController Service [GroupController VolumeGroupSnapshots] DeleteVolumeGroupSnapshot should fail when no volume id is provided",
		"GroupController Service [GroupController VolumeGroupSnapshots] DeleteVolumeGroupSnapshot should succeed when an invalid volume id is used",
		"GroupController Service [GroupController VolumeGroupSnapshots] GetVolumeGroupSnapshot should fail when an invalid volume id is used",
		"GroupController Service [GroupController VolumeGroupSnapshots] GetVolumeGroupSnapshot should fail when no volume id is provided",
	}},
	{"SNAPSHOT_ACCESSIBILITY_CONSTRAINTS", "the driver has no topology: volumes have the node's affinity, and a restore is brought to its snapshot", "SNAPSHOT_ACCESSIBILITY_CONSTRAINTS not supported", []string{
		"CreateSnapshot [Controller Server] should succeed when creating a snapshot with accessibility requirements",
	}},
}

// pending is the case that csi-sanity itself leaves out.
const pending = "Controller Service [Controller Server] ListVolumes pagination should detect volumes added between pages and accept tokens when the last volume from a page is deleted"

// cases is how many csi-sanity has.
const cases = 103

// checkSelected wants the cases that were not run to be those of skipped and pending, each for its
// reason, and all others to have passed.
func checkSelected(t *testing.T, r ginkgo.Report) {
	want := map[string]string{pending: "it is pending"}
	for _, of := range skipped {
		for _, name := range of.cases {
			want[name] = of.said
		}
	}
	all, passed := 0, 0
	for _, one := range r.SpecReports {
		if one.LeafNodeType != types.NodeTypeIt {
			continue
		}
		all++
		name, why := one.FullText(), notRun(one)
		if why == "" {
			passed++
		}
		if why != want[name] {
			t.Errorf("%s: %q, want %q (\"\" is run and passed)", name, why, want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 || all != cases {
		t.Errorf("csi-sanity has %d cases, and none of these:\n%s", all, strings.Join(slices.Sorted(maps.Keys(want)), "\n"))
	}
	t.Logf("csi-sanity: %d cases, %d passed", all, passed)
}

// notRun is why a case did not pass, "" if it did.
func notRun(one types.SpecReport) string {
	switch one.State {
	case types.SpecStatePassed:
		return ""
	case types.SpecStatePending:
		return "it is pending"
	case types.SpecStateSkipped:
		return one.Failure.Message
	default:
		return "it failed: " + one.Failure.Message
	}
}
