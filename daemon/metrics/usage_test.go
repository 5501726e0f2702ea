package metrics

import (
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
	m := New("test", Sources{Volumes: func() map[string]int { return nil }, Health: noHealth, Rooms: noRooms})
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

// Of volumes without limits those that take most have series, with the time at which they were read,
// and whether that is an estimate.
func TestMeasured(t *testing.T) {
	m := New("test", Sources{Volumes: func() map[string]int { return nil }, Health: noHealth, Rooms: noRooms})
	m.LimitVolumes(2)
	read := func(pv string, bytes uint64, estimate bool) usage.Volume {
		v := usage.Volume{PV: pv, Namespace: "ns", Claim: "c", Usage: quota.Usage{Bytes: bytes, Inodes: 3}}
		v.Measured = &usage.Measured{Bytes: bytes, Inodes: 3, Estimate: estimate, At: time.Unix(1700000000, 5)}
		return v
	}
	m.Usage("a", usage.Pool{Volumes: []usage.Volume{read("a1", 1, true), read("a2", 30, false), read("a3", 20, true)}})
	const want = `
# HELP hostpath_provisioner_volume_inodes_used Files and directories of a volume, by its quota or its directory.
# TYPE hostpath_provisioner_volume_inodes_used gauge
hostpath_provisioner_volume_inodes_used{namespace="ns",persistentvolumeclaim="c",pool="a",volume="a2"} 3
hostpath_provisioner_volume_inodes_used{namespace="ns",persistentvolumeclaim="c",pool="a",volume="a3"} 3
# HELP hostpath_provisioner_volume_used_bytes What a volume takes of its filesystem, by its quota or its directory; of the fullest volumes.
# TYPE hostpath_provisioner_volume_used_bytes gauge
hostpath_provisioner_volume_used_bytes{namespace="ns",persistentvolumeclaim="c",pool="a",volume="a2"} 30
hostpath_provisioner_volume_used_bytes{namespace="ns",persistentvolumeclaim="c",pool="a",volume="a3"} 20
# HELP hostpath_provisioner_volume_used_estimate 1 if not all of a volume's directory was read for what it takes, else 0; absent with a quota.
# TYPE hostpath_provisioner_volume_used_estimate gauge
hostpath_provisioner_volume_used_estimate{namespace="ns",persistentvolumeclaim="c",pool="a",volume="a2"} 0
hostpath_provisioner_volume_used_estimate{namespace="ns",persistentvolumeclaim="c",pool="a",volume="a3"} 1
# HELP hostpath_provisioner_volume_used_timestamp_seconds When a volume's directory was read for what it takes; absent with a quota.
# TYPE hostpath_provisioner_volume_used_timestamp_seconds gauge
hostpath_provisioner_volume_used_timestamp_seconds{namespace="ns",persistentvolumeclaim="c",pool="a",volume="a2"} 1.7e+09
hostpath_provisioner_volume_used_timestamp_seconds{namespace="ns",persistentvolumeclaim="c",pool="a",volume="a3"} 1.7e+09
`
	var names []string
	for _, name := range []string{"used_bytes", "inodes_used", "used_estimate", "used_timestamp_seconds", "limit_bytes"} {
		names = append(names, "hostpath_provisioner_volume_"+name)
	}
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	m.Usage("a", usage.Pool{Volumes: []usage.Volume{volumeOf("a1", 10, 0)}})
	for _, name := range names[2:4] {
		if n, err := testutil.GatherAndCount(m.Registry, name); n != 0 || err != nil {
			t.Errorf("%s of a volume with a quota: %d, %v", name, n, err)
		}
	}
}
