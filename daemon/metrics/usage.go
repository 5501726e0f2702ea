package metrics

import (
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
)

// volumeUsage has what volumes take, of a bounded number of them: names of claims are tenants'.
type volumeUsage struct {
	mu    sync.Mutex
	most  int
	pools map[string]usage.Pool
}

func figureOfVolume(name, help string) figure {
	return figureOf(name, help, "pool", "namespace", "persistentvolumeclaim", "volume")
}

// volumeFigures are the figures of a volume, by its project quota or its directory. A limit that it
// has not has no series.
var volumeFigures = []struct {
	figure
	of func(usage.Volume) (value uint64, known bool)
}{
	{figureOfVolume("volume_used_bytes",
		"What a volume takes of its filesystem, by its quota or its directory; "+
			"of the fullest volumes."),
		func(v usage.Volume) (uint64, bool) { return v.Bytes, true }},
	{figureOfVolume("volume_limit_bytes", "What a volume may take, by its quota."), func(v usage.Volume) (uint64, bool) { return v.Limit.Bytes, v.Limit.Bytes > 0 }},
	{figureOfVolume("volume_inodes_used",
		"Files and directories of a volume, by its quota or its directory."),
		func(v usage.Volume) (uint64, bool) { return v.Inodes, true }},
	{figureOfVolume("volume_used_estimate",
		"1 if a volume's directory was not read to its end for that, else 0; absent with a quota."),
		func(v usage.Volume) (uint64, bool) {
			return uint64(boolean(v.Measured != nil && v.Measured.Estimate)), v.Measured != nil
		}},
	{figureOfVolume("volume_used_timestamp_seconds",
		"When a volume's directory was read for what it takes; absent with a quota."),
		func(v usage.Volume) (uint64, bool) {
			if v.Measured == nil {
				return 0, false
			}
			return uint64(v.Measured.At.Unix()), true
		}},
	{figureOfVolume("volume_inodes_limit", "How many files and directories a volume may have, by its quota."), func(v usage.Volume) (uint64, bool) { return v.Limit.Inodes, v.Limit.Inodes > 0 }},
}

// The figures of a pool's projects.
var (
	projectsTaken = figureOf("pool_projects_taken",
		"Projects of the pool's quota_ids that volumes or others have.", "pool")
	projectsRange = figureOf("pool_projects", "How many projects the pool's quota_ids are.", "pool")
)

// Usage sets what the volumes of a pool take; the zero Pool if that is not known.
func (m *Metrics) Usage(pool string, takes usage.Pool) {
	m.usage.mu.Lock()
	defer m.usage.mu.Unlock()
	if m.usage.pools[pool] = takes; takes.Range == 0 && len(takes.Volumes) == 0 {
		delete(m.usage.pools, pool)
	}
}

// LimitVolumes bounds how many volumes have series of their own, over all pools: the fullest do. 0
// is none.
func (m *Metrics) LimitVolumes(n int) {
	m.usage.mu.Lock()
	defer m.usage.mu.Unlock()
	m.usage.most = n
}

func (u *volumeUsage) figures() []figure {
	all := []figure{projectsTaken, projectsRange}
	for _, f := range volumeFigures {
		all = append(all, f.figure)
	}
	return all
}

func (u *volumeUsage) tell(say say) {
	u.tellProjects(say)
	for pool, volumes := range u.fullest() {
		for _, v := range volumes {
			for _, f := range volumeFigures {
				if value, known := f.of(v); known {
					say(f.figure, float64(value), pool, v.Namespace, v.Claim, v.PV)
				}
			}
		}
	}
}

func (u *volumeUsage) tellProjects(say say) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for pool, takes := range u.pools {
		if takes.Range > 0 {
			say(projectsTaken, float64(takes.Taken), pool)
			say(projectsRange, float64(takes.Range), pool)
		}
	}
}

// fullest returns the volumes that have series, by pool.
func (u *volumeUsage) fullest() map[string][]usage.Volume {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []usage.Volume
	pool := map[string]string{}
	for name, takes := range u.pools {
		for _, v := range takes.Volumes {
			all, pool[v.PV] = append(all, v), name
		}
	}
	kept := map[string][]usage.Volume{}
	for _, v := range usage.Fullest(all, u.most) {
		kept[pool[v.PV]] = append(kept[pool[v.PV]], v)
	}
	return kept
}
