package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
)

// volumeUsage has what volumes take, of a bounded number of them: names of claims are tenants'.
type volumeUsage struct {
	mu    sync.Mutex
	most  int
	pools map[string]usage.Pool
}

var volumeLabels = []string{"pool", "namespace", "persistentvolumeclaim", "volume"}

func volumeDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+"_"+name, help, volumeLabels, nil)
}

// volumeFigures are the figures of a volume, by its project quota or its directory. A limit that it
// has not has no series.
var volumeFigures = []struct {
	desc *prometheus.Desc
	of   func(usage.Volume) (value uint64, known bool)
}{
	{volumeDesc("volume_used_bytes",
		"What a volume takes of its filesystem, by its quota or its directory; "+
			"of the fullest volumes."),
		func(v usage.Volume) (uint64, bool) { return v.Bytes, true }},
	{volumeDesc("volume_limit_bytes", "What a volume may take, by its quota."), func(v usage.Volume) (uint64, bool) { return v.Limit.Bytes, v.Limit.Bytes > 0 }},
	{volumeDesc("volume_inodes_used",
		"Files and directories of a volume, by its quota or its directory."),
		func(v usage.Volume) (uint64, bool) { return v.Inodes, true }},
	{volumeDesc("volume_used_estimate",
		"1 if a volume's directory was not read to its end for that, else 0; absent with a quota."),
		func(v usage.Volume) (uint64, bool) {
			return uint64(boolean(v.Measured != nil && v.Measured.Estimate)), v.Measured != nil
		}},
	{volumeDesc("volume_used_timestamp_seconds",
		"When a volume's directory was read for what it takes; absent with a quota."),
		func(v usage.Volume) (uint64, bool) {
			if v.Measured == nil {
				return 0, false
			}
			return uint64(v.Measured.At.Unix()), true
		}},
	{volumeDesc("volume_inodes_limit", "How many files and directories a volume may have, by its quota."), func(v usage.Volume) (uint64, bool) { return v.Limit.Inodes, v.Limit.Inodes > 0 }},
}

// The figures of a pool's projects.
var (
	projectsTaken = prometheus.NewDesc(namespace+"_pool_projects_taken", "Projects of the pool's quota_ids that volumes or others have.", []string{"pool"}, nil)
	projectsRange = prometheus.NewDesc(namespace+"_pool_projects", "How many projects the pool's quota_ids are.", []string{"pool"}, nil)
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

// Describe is part of prometheus.Collector.
func (u *volumeUsage) Describe(ch chan<- *prometheus.Desc) {
	ch <- projectsTaken
	ch <- projectsRange
	for _, f := range volumeFigures {
		ch <- f.desc
	}
}

// Collect is part of prometheus.Collector.
func (u *volumeUsage) Collect(ch chan<- prometheus.Metric) {
	u.collectProjects(ch)
	for pool, volumes := range u.fullest() {
		for _, v := range volumes {
			for _, f := range volumeFigures {
				if value, known := f.of(v); known {
					ch <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, float64(value), pool, v.Namespace, v.Claim, v.PV)
				}
			}
		}
	}
}

func (u *volumeUsage) collectProjects(ch chan<- prometheus.Metric) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for pool, takes := range u.pools {
		if takes.Range > 0 {
			ch <- prometheus.MustNewConstMetric(projectsTaken, prometheus.GaugeValue, float64(takes.Taken), pool)
			ch <- prometheus.MustNewConstMetric(projectsRange, prometheus.GaugeValue, float64(takes.Range), pool)
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

// workOf collects what is under way at scrape time, by pool and kind: volumes have names of
// tenants.
type workOf struct {
	work func() map[string][]volume.Work
}

var (
	workRunning = prometheus.NewDesc(namespace+"_work_running",
		"Purges, clones, restores and copied snapshots under way.", []string{"pool", "kind"}, nil)
	workFiles = prometheus.NewDesc(namespace+"_work_files",
		"Files that those under way have removed or copied so far.", []string{"pool", "kind"}, nil)
	workBytes = prometheus.NewDesc(namespace+"_work_bytes",
		"Bytes that those under way have written so far; 0 where data is shared or removed.",
		[]string{"pool", "kind"}, nil)
)

// Describe is part of prometheus.Collector.
func (workOf) Describe(ch chan<- *prometheus.Desc) {
	ch <- workRunning
	ch <- workFiles
	ch <- workBytes
}

// Collect is part of prometheus.Collector.
func (w workOf) Collect(ch chan<- prometheus.Metric) {
	if w.work == nil {
		return
	}
	for pool, all := range w.work() {
		for _, kind := range volume.WorkKinds {
			var running, files, bytes float64
			for _, one := range all {
				if one.Kind == kind {
					running++
					files += float64(one.State.Files)
					bytes += float64(one.State.Bytes)
				}
			}
			ch <- prometheus.MustNewConstMetric(workRunning, prometheus.GaugeValue, running, pool, kind)
			ch <- prometheus.MustNewConstMetric(workFiles, prometheus.GaugeValue, files, pool, kind)
			ch <- prometheus.MustNewConstMetric(workBytes, prometheus.GaugeValue, bytes, pool, kind)
		}
	}
}
