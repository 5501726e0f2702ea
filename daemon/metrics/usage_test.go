package metrics

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
)

func volumeOf(pv string, bytes, inodes uint64) usage.Volume {
	return usage.Volume{PV: pv, Namespace: "ns", Claim: "claim-" + pv, Usage: quota.Usage{Bytes: bytes, Inodes: 3, Limit: quota.Limit{Bytes: 100, Inodes: inodes}}}
}

// The fullest volumes have series, as many as are allowed over all pools; what is not known any
// more has none.
func TestUsage(t *testing.T) {
	m := New("test", Sources{Volumes: noVolumes, Health: noHealth,
		Rooms: noRooms, States: noStates, Work: noWork})
	m.LimitVolumes(2)
	m.Usage("a", usage.Pool{Volumes: []usage.Volume{volumeOf("a1", 10, 0), volumeOf("a2", 90, 0)}})
	m.Usage("b", usage.Pool{Volumes: []usage.Volume{volumeOf("b1", 50, 10)}})
	const want = `
# HELP hostpath_provisioner_volume_limit_bytes What a volume may take, by its quota.
# TYPE hostpath_provisioner_volume_limit_bytes gauge
hostpath_provisioner_volume_limit_bytes{namespace="ns",persistentvolumeclaim="claim-a2",pool="a",volume="a2"} 100
hostpath_provisioner_volume_limit_bytes{namespace="ns",persistentvolumeclaim="claim-b1",pool="b",volume="b1"} 100
# HELP hostpath_provisioner_volume_inodes_limit How many files and directories a volume may have, by its quota.
# TYPE hostpath_provisioner_volume_inodes_limit gauge
hostpath_provisioner_volume_inodes_limit{namespace="ns",persistentvolumeclaim="claim-b1",pool="b",volume="b1"} 10
# HELP hostpath_provisioner_volume_used_bytes What a volume takes of its filesystem, by its quota or its directory; of the fullest volumes.
# TYPE hostpath_provisioner_volume_used_bytes gauge
hostpath_provisioner_volume_used_bytes{namespace="ns",persistentvolumeclaim="claim-a2",pool="a",volume="a2"} 90
hostpath_provisioner_volume_used_bytes{namespace="ns",persistentvolumeclaim="claim-b1",pool="b",volume="b1"} 50
`
	names := []string{"hostpath_provisioner_volume_used_bytes", "hostpath_provisioner_volume_limit_bytes", "hostpath_provisioner_volume_inodes_limit"}
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	m.Usage("a", usage.Pool{})
	if n, err := testutil.GatherAndCount(m.Registry, "hostpath_provisioner_volume_inodes_used"); n != 1 || err != nil {
		t.Errorf("%d series, %v", n, err)
	}
	m.Usage("c", usage.Pool{Taken: 3, Range: 4})
	const projects = `
# HELP hostpath_provisioner_pool_projects How many projects the pool's quota_ids are.
# TYPE hostpath_provisioner_pool_projects gauge
hostpath_provisioner_pool_projects{pool="c"} 4
# HELP hostpath_provisioner_pool_projects_taken Projects of the pool's quota_ids that volumes or others have.
# TYPE hostpath_provisioner_pool_projects_taken gauge
hostpath_provisioner_pool_projects_taken{pool="c"} 3
`
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(projects), "hostpath_provisioner_pool_projects", "hostpath_provisioner_pool_projects_taken"); err != nil {
		t.Error(err)
	}
	m.LimitVolumes(0)
	if n, err := testutil.GatherAndCount(m.Registry, names...); n != 0 || err != nil {
		t.Errorf("%d series, %v", n, err)
	}
}

// Of volumes without limits those that take most have series, with the time at which they were
// read, and whether that is an estimate.
func TestMeasured(t *testing.T) {
	m := New("test", Sources{Health: noHealth, Rooms: noRooms, States: noStates, Work: noWork,
		Volumes: noVolumes})
	m.LimitVolumes(2)
	at := time.Unix(1700000000, 5)
	read := func(pv string, bytes uint64, estimate bool) usage.Volume {
		v := usage.Volume{PV: pv, Usage: quota.Usage{Bytes: bytes, Inodes: 3}}
		v.Measured = &usage.Measured{Bytes: bytes, Inodes: 3, Estimate: estimate, At: at}
		return v
	}
	m.Usage("a", usage.Pool{Volumes: []usage.Volume{
		read("a1", 1, true), read("a2", 30, false), read("a3", 20, true)}})
	want := map[string]float64{
		"used_bytes a2": 30, "inodes_used a2": 3, "used_estimate a2": 0,
		"used_bytes a3": 20, "inodes_used a3": 3, "used_estimate a3": 1,
		"used_timestamp_seconds a2": 1700000000, "used_timestamp_seconds a3": 1700000000,
	}
	if got := seriesOf(t, m); !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	m.Usage("a", usage.Pool{Volumes: []usage.Volume{volumeOf("a1", 10, 0)}})
	want = map[string]float64{"used_bytes a1": 10, "inodes_used a1": 3, "limit_bytes a1": 100}
	if got := seriesOf(t, m); !maps.Equal(got, want) {
		t.Errorf("with a quota: got  %v\nwant %v", got, want)
	}
}

// seriesOf are the series of volumes, by metric and volume.
func seriesOf(t *testing.T, m *Metrics) map[string]float64 {
	t.Helper()
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		name, is := strings.CutPrefix(family.GetName(), "hostpath_provisioner_volume_")
		for _, one := range family.GetMetric() {
			for _, label := range one.GetLabel() {
				if is && label.GetName() == "volume" {
					all[name+" "+label.GetValue()] = one.GetGauge().GetValue()
				}
			}
		}
	}
	return all
}
