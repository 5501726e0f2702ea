package config

import (
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// A pool makes copies if it has one of the two uses of them.
func TestMakesCopies(t *testing.T) {
	for _, c := range []struct {
		clones, snapshots string
		want              bool
	}{
		{plan.ClonesCopy, plan.SnapshotsCopy, true}, {plan.ClonesReflink, "", true}, {"", plan.SnapshotsLive, true}, {"", plan.SnapshotsSnapshot, true}, {"", plan.SnapshotsPaused, true}, {"", "", false}, {"off", "off", false},
	} {
		if got := (Pool{Clones: c.clones, Snapshots: c.snapshots}).MakesCopies(); got != c.want {
			t.Errorf("clones %q, snapshots %q: %t", c.clones, c.snapshots, got)
		}
	}
}

// What the snapshots of a namespace may be promised is an amount, or not bounded.
func TestSnapshotsPerNamespace(t *testing.T) {
	for text, want := range map[string]uint64{"unlimited": 0, "20Gi": 20 << 30} {
		if got := load(t, minimal+"\nsnapshots_per_namespace = '"+text+"'\n").Pools[0].SnapshotSpace; got != want {
			t.Errorf("%s: %d", text, got)
		}
	}
	for text, want := range map[string]string{"0": "has room for no snapshot", "off": `neither "unlimited" nor an amount`} {
		_, err := Load(write(t, minimal+"\nsnapshots_per_namespace = '"+text+"'\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The kernel takes 107 bytes of a socket's path: what would be longer is refused with its length,
// and what fits is not.
func TestSocketPathFits(t *testing.T) {
	const driver = "kubevirt.io.hostpath-provisioner"
	longest := socketMax - len(driver) - len("/plugins_registry/-reg.sock")
	for _, over := range []int{0, 1} {
		root := "/" + strings.Repeat("k", longest+over-1)
		file := write(t, "kubelet_root='"+root+"'\naliases=['"+driver+"']\ncsi_drivers=['"+driver+"']\n"+minimal)
		_, err := Load(file)
		want := "config.toml:1: kubelet_root: the path of a socket of the CSI driver " + driver + " would have 108 bytes, and 107 is the most"
		if over == 0 && err != nil || over == 1 && (err == nil || said(file, err.Error()) != want) {
			t.Errorf("%d too many: %v", over, err)
		}
	}
}
