// Package metrics counts what the daemon does and serves it to Prometheus, with a health page.
//
// It does not decide what healthy means (its callers do), it does not log, and the number of its
// series is bounded: pools are configured, reasons are a fixed list, and of volumes, whose labels
// are tenants' names, there are as many as the configuration allows.
package metrics

import (
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

const namespace = "hostpath_provisioner"

// Metrics are the metrics of one daemon. The methods never block.
type Metrics struct {
	Registry    *prometheus.Registry
	provisioned *prometheus.CounterVec
	refused     *prometheus.CounterVec
	removed     *prometheus.CounterVec
	parts       *prometheus.CounterVec
	expansions  *prometheus.CounterVec
	snapshots   *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	open        *prometheus.GaugeVec
	closed      *prometheus.GaugeVec
	sizes       []size
	probe       *prometheus.GaugeVec
	checks      *prometheus.CounterVec
	refusals    *prometheus.CounterVec
	reloaded    prometheus.Gauge
	reloadedAt  prometheus.Gauge
	away        prometheus.Gauge
	usage       volumeUsage
}

// Sources are called at each scrape, so that no copy can become stale.
type Sources struct {
	Volumes func() map[string]int // volume objects by pool
	Health  func() Health
	Rooms   func() map[string]Room           // by pool, of those whose storage is there
	States  func() map[string]map[string]int // volumes by pool and state
	Work    func() map[string][]volume.Work  // under way, by pool
}

// Room is what a pool has for new volumes, in bytes.
type Room struct {
	Free     uint64  // for one more volume
	Promised uint64  // to the pool's volumes
	Counted  bool    // Promised is known
	Used     *uint64 // what they take; nil: that is not known
	// Estimate: it is by directories, not all of which were read.
	Estimate bool
}

// Health is the health of the daemon and of the API, without that of the pools.
type Health struct {
	Ready       bool      // claims can be provisioned: the same as /readyz
	APIUp       bool      // the API was read, and no request fails now
	LastSuccess time.Time // when the API server last accepted a request or sent something; zero is never
	// CredentialExpiry is when the kubeconfig's credential ends; zero: it does not say.
	CredentialExpiry time.Time
	// CredentialRenewedBy is when it has been renewed, unless that fails; zero: it is not renewed.
	CredentialRenewedBy time.Time
	// ConfigInForce: the configuration on disk is the one in force.
	ConfigInForce bool

	DroppedNormal, DroppedWarning int64 // events that were dropped because the queue was full, since the last reload
}

// New returns Metrics whose registry has the daemon's, the Go runtime's and the process's metrics.
func New(version string, from Sources) *Metrics {
	m := &Metrics{
		Registry:    prometheus.NewRegistry(),
		provisioned: counter("claims_provisioned_total", "Claims that got a volume.", "pool"),
		refused:     counter("claims_refused_total", "Events on claims that say why there is no volume now, by reason.", "pool", "reason"),
		removed:     counter("volumes_removed_total", "Volumes that were removed, archived or retained, that could not be, and that were restored or are lost, by reason.", "pool", "reason"),
		parts:       counter("node_directories_total", "Directories that this node made for volumes of scope every-node that another one published, or could not make, once for each reason told.", "pool", "reason"),
		expansions:  counter("expansions_total", "Bound claims that got the larger size that they request, and events that say why they have not got it, by reason.", "pool", "reason"),
		snapshots: counter("snapshots_total",
			"VolumeSnapshots that became ready, and events that say why one is not, by reason.", "reason"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "provision_duration_seconds", Help: "From a claim first seen to its volume object created.",
			Buckets: prometheus.ExponentialBuckets(0.002, 2.5, 12),
		}, []string{"pool"}),
		open:       gauge("pool_open", "1 if the pool takes new volumes, 0 if it is closed or full; pool_finding tells which.", "pool"),
		closed:     gauge("pool_finding", "1 for each reason found when the pool was last checked; severity is close, full or warn.", "pool", "reason", "severity"),
		sizes:      newSizes(),
		probe:      gauge("pool_check_duration_seconds", "How long the last check of the pool took.", "pool"),
		checks:     counter("pool_checks_total", "How often the pool was checked: every 10 seconds, and whenever a mount of the host changes.", "pool"),
		refusals:   counter("api_refused_total", "Requests that the API server refused or could not take, by the reason in its response; Unreachable is no response.", "reason"),
		reloaded:   gauge("config_last_reload_successful", "1 if the configuration on disk is in force, as far as it was last read.").WithLabelValues(),
		reloadedAt: gauge("config_last_reload_success_timestamp_seconds", "When a configuration was last taken into force.").WithLabelValues(),
		away: gauge("volumes_away", "Volumes of all nodes that are gone or not Ready, as this "+
			"daemon counted them; 0 while another one does.").WithLabelValues(),
	}
	for _, reason := range refusalReasons {
		m.refusals.WithLabelValues(reason)
	}
	m.Registry.MustRegister(m.provisioned, m.refused, m.removed, m.parts, m.expansions, m.snapshots,
		m.duration, m.open, m.closed, m.probe, m.checks, m.refusals, m.reloaded, m.reloadedAt, m.away,
		buildInfo(version), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, s := range m.sizes {
		m.Registry.MustRegister(s.gauge)
	}
	m.usage.pools = map[string]usage.Pool{}
	m.Registry.MustRegister(atScrape{m.usage.figures(), m.usage.tell})
	m.Registry.MustRegister(from.collectors()...)
	return m
}

// size is one figure of a pool's filesystem. It has no series while the storage is away.
type size struct {
	gauge *prometheus.GaugeVec
	of    func(hostcheck.Report) uint64
}

// newSizes are named after those of node_exporter (node_filesystem_size_bytes), a metric for each.
func newSizes() []size {
	return []size{
		{gauge("pool_size_bytes", "Size of the pool's filesystem.", "pool"), func(r hostcheck.Report) uint64 { return r.Size }},
		{gauge("pool_avail_bytes", "What is available on the pool's filesystem.", "pool"), func(r hostcheck.Report) uint64 { return r.Available }},
		{gauge("pool_inodes", "Inodes of the pool's filesystem; 0 where it has no limit.", "pool"), func(r hostcheck.Report) uint64 { return r.Inodes }},
		{gauge("pool_inodes_free", "Free inodes of the pool's filesystem.", "pool"), func(r hostcheck.Report) uint64 { return r.InodesFree }},
	}
}

// Away is how many volumes are on nodes that are gone or silent, 0 where another daemon counts.
func (m *Metrics) Away(volumes int) { m.away.Set(float64(volumes)) }

// Claim counts a claim that got its volume, took after it was first seen. With took 0 it counts an
// event with the reason why a claim has no volume.
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

// Expansion counts what became of a bound claim that requests more than it has.
func (m *Metrics) Expansion(pool, reason string) { m.expansions.WithLabelValues(pool, reason).Inc() }

// Snapshot counts a snapshot that is ready, or an event with the reason why one is not.
func (m *Metrics) Snapshot(reason string) { m.snapshots.WithLabelValues(reason).Inc() }

// Pool sets the metrics of a pool after a check.
func (m *Metrics) Pool(s gate.State) {
	pool, r := s.Report.Pool, s.Report
	m.open.WithLabelValues(pool).Set(boolean(s.Open()))
	m.closed.DeletePartialMatch(prometheus.Labels{"pool": pool})
	for _, f := range r.Findings {
		m.closed.WithLabelValues(pool, f.Reason, f.Severity.String()).Set(1)
	}
	for _, s := range m.sizes {
		if s.gauge.DeleteLabelValues(pool); r.Size > 0 {
			s.gauge.WithLabelValues(pool).Set(float64(s.of(r)))
		}
	}
	m.probe.WithLabelValues(pool).Set(r.Took.Seconds())
	m.checks.WithLabelValues(pool).Inc()
}

// refusalReasons are the reasons of a status (k8s.io/apimachinery/pkg/apis/meta/v1, StatusReason)
// that are failures. NotFound, Conflict, AlreadyExists and Expired occur without a fault.
var refusalReasons = []string{"Unauthorized", "Forbidden", "Invalid", "BadRequest", "TooManyRequests", "InternalError", "ServiceUnavailable", "Timeout", "Unreachable", "Other"}

// Refused counts a request that the API server refused, by reason.
func (m *Metrics) Refused(reason string) {
	if !slices.Contains(refusalReasons, reason) {
		reason = "Other"
	}
	m.refusals.WithLabelValues(reason).Inc()
}

// Reloaded records whether a configuration was loaded.
func (m *Metrics) Reloaded(good bool, now time.Time) {
	m.reloaded.Set(boolean(good))
	if good {
		m.reloadedAt.Set(float64(now.UnixMilli()) / 1000)
	}
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

// Expect creates the series of each pool with the value 0, so that rate() sees the first increase.
func (m *Metrics) Expect(pools []string) {
	for _, pool := range append([]string{""}, pools...) { // "": claims whose class leads to no pool
		for _, reason := range plan.ClaimReasons {
			m.refused.WithLabelValues(pool, reason)
		}
		for _, reason := range plan.ExpansionReasons {
			m.expansions.WithLabelValues(pool, reason)
		}
	}
	for _, reason := range plan.SnapshotReasons {
		m.snapshots.WithLabelValues(reason)
	}
	for _, pool := range pools {
		m.provisioned.WithLabelValues(pool)
		m.duration.WithLabelValues(pool)
		for _, reason := range plan.VolumeReasons {
			m.removed.WithLabelValues(pool, reason)
		}
		for _, reason := range plan.DirectoryReasons {
			m.parts.WithLabelValues(pool, reason)
		}
	}
}

// Forget removes the gauges of all pools, because the configured pools may have changed.
func (m *Metrics) Forget() {
	for _, g := range []*prometheus.GaugeVec{m.open, m.closed, m.probe} {
		g.Reset()
	}
	for _, s := range m.sizes {
		s.gauge.Reset()
	}
}
