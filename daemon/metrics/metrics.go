// Package metrics counts what the daemon does and serves it to Prometheus, with a health page.
//
// It will not decide what healthy means (the caller says), it does not log, and it has no labels
// whose values come from users: pools are configured and reasons are a fixed list, so the number of
// series is bounded.
package metrics

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/gate"
)

const namespace = "hostpath_provisioner"

// Metrics is one daemon's numbers. Its methods never block.
type Metrics struct {
	Registry    *prometheus.Registry
	provisioned *prometheus.CounterVec
	refused     *prometheus.CounterVec
	removed     *prometheus.CounterVec
	parts       *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	open        *prometheus.GaugeVec
	closed      *prometheus.GaugeVec
	bytes       *prometheus.GaugeVec
	inodes      *prometheus.GaugeVec
	probe       *prometheus.GaugeVec
	checks      *prometheus.CounterVec
}

// New makes a registry with the daemon's, the Go runtime's and the process's metrics. volumes counts
// the volume objects of each pool; it is called at each scrape.
func New(version string, volumes func() map[string]int) *Metrics {
	m := &Metrics{
		Registry:    prometheus.NewRegistry(),
		provisioned: counter("claims_provisioned_total", "Claims that got a volume.", "pool"),
		refused:     counter("claims_refused_total", "Claims that were told why they get no volume now, once for each reason told.", "pool", "reason"),
		removed:     counter("volumes_removed_total", "Volumes that were removed, archived or retained, that could not be, and that were put back or are lost, by reason.", "pool", "reason"),
		parts:       counter("node_directories_total", "Directories that this node made for volumes of scope every-node that another one published, or could not make, once for each reason told.", "pool", "reason"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "provision_duration_seconds", Help: "From a claim first seen to its volume object created.",
			Buckets: prometheus.ExponentialBuckets(0.002, 2.5, 12),
		}, []string{"pool"}),
		open:   gauge("pool_open", "1 if the pool takes work, 0 if its gate is closed.", "pool"),
		closed: gauge("pool_finding", "1 for each reason found when the pool was last checked; severity is close, full or warn.", "pool", "reason", "severity"),
		bytes:  gauge("pool_bytes", "Size of the pool's filesystem, what is available on it, and what new volumes may take after the reserve.", "pool", "kind"),
		inodes: gauge("pool_inodes", "Inodes of the pool's filesystem, in all and free; 0 where it has no limit.", "pool", "kind"),
		probe:  gauge("pool_check_duration_seconds", "How long the last check of the pool took.", "pool"),
		checks: counter("pool_checks_total", "How often the pool was checked: every 10 seconds, and whenever a mount of the host changes.", "pool"),
	}
	m.Registry.MustRegister(m.provisioned, m.refused, m.removed, m.parts, m.duration, m.open, m.closed, m.bytes, m.inodes, m.probe, m.checks,
		volumeCount{volumes}, buildInfo(version), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Claim counts a claim that got its volume, took after it was first seen, or one that was told a
// reason why not.
func (m *Metrics) Claim(pool, reason string, took time.Duration) {
	if took > 0 {
		m.provisioned.WithLabelValues(pool).Inc()
		m.duration.WithLabelValues(pool).Observe(took.Seconds())
		return
	}
	m.refused.WithLabelValues(pool, reason).Inc()
}

// Volume counts a volume removed, or not removed, for a reason.
func (m *Metrics) Volume(pool, reason string) { m.removed.WithLabelValues(pool, reason).Inc() }

// Part counts a directory of a volume of scope every-node that was made, or was not, for a reason.
func (m *Metrics) Part(pool, reason string) { m.parts.WithLabelValues(pool, reason).Inc() }

// Pool takes the state of a pool after a check.
func (m *Metrics) Pool(s gate.State) {
	pool, r := s.Report.Pool, s.Report
	m.open.WithLabelValues(pool).Set(boolean(s.Open()))
	m.closed.DeletePartialMatch(prometheus.Labels{"pool": pool})
	for _, f := range r.Findings {
		m.closed.WithLabelValues(pool, f.Reason, f.Severity.String()).Set(1)
	}
	m.bytes.WithLabelValues(pool, "size").Set(float64(r.Size))
	m.bytes.WithLabelValues(pool, "available").Set(float64(r.Available))
	m.bytes.WithLabelValues(pool, "free").Set(float64(r.Free))
	m.inodes.WithLabelValues(pool, "all").Set(float64(r.Inodes))
	m.inodes.WithLabelValues(pool, "free").Set(float64(r.InodesFree))
	m.probe.WithLabelValues(pool).Set(r.Took.Seconds())
	m.checks.WithLabelValues(pool).Inc()
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func buildInfo(version string) prometheus.Collector {
	g := gauge("build_info", "1, with the version of the daemon and of Go.", "version", "goversion")
	g.WithLabelValues(version, runtime.Version()).Set(1)
	return g
}

// volumeCount counts at scrape time, so that nothing is kept that could disagree with the watch.
type volumeCount struct{ count func() map[string]int }

func (volumeCount) desc() *prometheus.Desc {
	return prometheus.NewDesc(namespace+"_pool_volumes", "Volume objects of this node, by pool.", []string{"pool"}, nil)
}

// Describe is part of prometheus.Collector.
func (v volumeCount) Describe(ch chan<- *prometheus.Desc) { ch <- v.desc() }

// Collect is part of prometheus.Collector.
func (v volumeCount) Collect(ch chan<- prometheus.Metric) {
	for pool, n := range v.count() {
		ch <- prometheus.MustNewConstMetric(v.desc(), prometheus.GaugeValue, float64(n), pool)
	}
}

// Forget drops what was last seen of the pools, because the configured pools may have changed.
func (m *Metrics) Forget() {
	for _, g := range []*prometheus.GaugeVec{m.open, m.closed, m.bytes, m.inodes, m.probe} {
		g.Reset()
	}
}
