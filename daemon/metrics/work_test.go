package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/progress"
)

// What is under way is summed up by pool and kind, without the names of volumes; each pool has a
// series of each kind.
func TestWork(t *testing.T) {
	work := map[string][]volume.Work{"fast": {
		{Kind: volume.WorkClone, PV: "pvc-a", State: progress.State{Files: 3, Bytes: 40}},
		{Kind: volume.WorkPurge, PV: "pvc-b", State: progress.State{Files: 5}},
	}, "idle": nil}
	m := New("v1", Sources{Volumes: noVolumes, Health: noHealth,
		Rooms: noRooms, States: noStates, Work: func() map[string][]volume.Work { return work }})
	for name, want := range map[string]map[string]string{
		"work_running": {"clone": "1", "purge": "1"},
		"work_files":   {"clone": "3", "purge": "5"},
		"work_bytes":   {"clone": "40"},
	} {
		name = namespace + "_" + name
		text, n := "", 0
		for _, pool := range []string{"fast", "idle"} {
			for _, kind := range volume.WorkKinds {
				value := "0"
				if pool == "fast" && want[kind] != "" {
					value = want[kind]
				}
				text += name + `{kind="` + kind + `",pool="` + pool + `"} ` + value + "\n"
				n++
			}
		}
		help := map[string]string{"work_running": workRunning.desc.String(),
			"work_files": workFiles.desc.String(), "work_bytes": workBytes.desc.String()}[strings.TrimPrefix(name, namespace+"_")]
		_, help, _ = strings.Cut(help, `help: "`)
		help, _, _ = strings.Cut(help, `"`)
		text = "# HELP " + name + " " + help + "\n# TYPE " + name + " gauge\n" + text
		if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(text), name); err != nil {
			t.Error(err)
		}
		if got, err := testutil.GatherAndCount(m.Registry, name); err != nil || got != n {
			t.Errorf("%s has %d series, want %d: %v", name, got, n, err)
		}
	}
}
