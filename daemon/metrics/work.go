package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
)

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
