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
	capability string         // that they are of, of the controller where nothing else is said
	why        string         // the driver and the daemon do not have it
	said       map[string]int // what csi-sanity says of them, and of how many
}

// skipped has all cases that are not run, of 103 (docs/dev/decisions.md).
var skipped = []left{
	{"PUBLISH_UNPUBLISH_VOLUME", "there is nothing to attach: attachRequired is false", map[string]int{
		"ControllerPublishVolume not supported":             7,
		"Controller Publish, UnpublishVolume not supported": 2,
		"ControllerUnpublishVolume not supported":           1,
	}},
	{"STAGE_UNSTAGE_VOLUME", "the directory is mounted for each pod, and nothing before for all", map[string]int{
		"NodeStageVolume not supported": 3, "NodeUnstageVolume not supported": 2,
	}},
	{"EXPAND_VOLUME of the node", "the daemon sets the limit, and no filesystem has to grow", map[string]int{
		"NodeExpandVolume not supported": 4,
	}},
	{"MODIFY_VOLUME", "a claim with a VolumeAttributesClass is refused", map[string]int{
		"Modify volume not supported": 1, "Modify Volume not supported": 1, "ControllerModifyVolume not supported": 6,
	}},
	{"GROUP_CONTROLLER_SERVICE", "snapshots of groups are not made", map[string]int{
		"GroupControllerService not supported": 6,
	}},
	// Volumes have the node's affinity, and a restore is brought to its snapshot.
	{"SNAPSHOT_ACCESSIBILITY_CONSTRAINTS", "the driver has no topology", map[string]int{
		"SNAPSHOT_ACCESSIBILITY_CONSTRAINTS not supported": 1,
	}},
	{"", "csi-sanity itself leaves it out: tokens of pages between which volumes come and go", map[string]int{pending: 1}},
}

const pending = "it is pending"

// cases is how many csi-sanity has.
const cases = 103

// checkSelected wants so many cases not to have been run, each for its reason, and all others to
// have passed.
func checkSelected(t *testing.T, r ginkgo.Report) {
	want, got := map[string]int{"": cases}, map[string][]string{}
	for _, of := range skipped {
		for said, n := range of.said {
			want[said], want[""] = n, want[""]-n
		}
	}
	for _, one := range r.SpecReports {
		if one.LeafNodeType == types.NodeTypeIt {
			why := notRun(one)
			got[why] = append(got[why], one.FullText())
		}
	}
	t.Logf("csi-sanity: %d cases passed", len(got[""]))
	for why, names := range got {
		if len(names) != want[why] {
			t.Errorf("%q (\"\" is run and passed): %d cases, want %d:\n%s", why, len(names), want[why], strings.Join(names, "\n"))
		}
		delete(want, why)
	}
	if len(want) > 0 {
		t.Errorf("csi-sanity has no case that is left out because of %q", slices.Sorted(maps.Keys(want)))
	}
}

// notRun is why a case did not pass, "" if it did.
func notRun(one types.SpecReport) string {
	switch one.State {
	case types.SpecStatePassed:
		return ""
	case types.SpecStatePending:
		return pending
	case types.SpecStateSkipped:
		return one.Failure.Message
	default:
		return "it failed: " + one.Failure.Message
	}
}
