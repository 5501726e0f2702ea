package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
)

// figure is a series whose values are asked for at scrape time.
type figure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func figureOf(name, help string, labels ...string) figure {
	return figure{prometheus.NewDesc(namespace+"_"+name, help, labels, nil), prometheus.GaugeValue}
}

// say gives a figure a value.
type say func(f figure, value float64, labels ...string)

// atScrape collects figures when they are asked for.
type atScrape struct {
	figures []figure
	tell    func(say)
}

// Describe is part of prometheus.Collector.
func (s atScrape) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range s.figures {
		ch <- f.desc
	}
}

// Collect is part of prometheus.Collector.
func (s atScrape) Collect(ch chan<- prometheus.Metric) {
	s.tell(func(f figure, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(f.desc, f.kind, value, labels...)
	})
}

// collectors are what the sources say.
func (from Sources) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		atScrape{[]figure{volumes}, from.tellVolumes}, atScrape{[]figure{states}, from.tellStates},
		atScrape{[]figure{provisionable, used, usedEstimate, promised}, from.tellRooms},
		atScrape{[]figure{workRunning, workFiles, workBytes}, from.tellWork},
		atScrape{[]figure{ready, apiUp, apiLast, credentialExpiry, renewedBy, inForce, dropped}, from.tellHealth},
	}
}

var (
	volumes = figureOf("pool_volumes", "Volume objects of this node, by pool.", "pool")
	states  = figureOf("volumes",
		"Volumes of the pool by state, as the volumes command has them; each is counted once.",
		"pool", "state")
)

func (from Sources) tellVolumes(say say) {
	for pool, n := range from.Volumes() {
		say(volumes, float64(n), pool)
	}
}

func (from Sources) tellStates(say say) {
	for pool, counts := range from.States() {
		for state, n := range counts {
			say(states, float64(n), pool, state)
		}
	}
}

var (
	provisionable = figureOf("pool_provisionable_bytes", "What one more volume can get: what is "+
		"available, less the reserve, and no more than was not promised.", "pool")
	used = figureOf("pool_used_bytes",
		"What the pool's volumes take, by their quotas, or what is in use on the filesystem "+
			"that is the pool's alone, or by their directories; absent where none is known.", "pool")
	usedEstimate = figureOf("pool_used_estimate",
		"1 if pool_used_bytes is by directories and one of them was not read to its end, else 0.",
		"pool")
	promised = figureOf("pool_promised_bytes", "What the pool keeps for its volumes, whether or "+
		"not they use it: the sum of their sizes.", "pool")
)

func (from Sources) tellRooms(say say) {
	for pool, room := range from.Rooms() {
		say(provisionable, float64(room.Free), pool)
		if room.Used != nil {
			say(used, float64(*room.Used), pool)
			say(usedEstimate, boolean(room.Estimate), pool)
		}
		if room.Counted {
			say(promised, float64(room.Promised), pool)
		}
	}
}

// Work is told by pool and kind: volumes have names of tenants.
var (
	workRunning = figureOf("work_running",
		"Purges, clones, restores and copied snapshots under way.", "pool", "kind")
	workFiles = figureOf("work_files",
		"Files that those under way have removed or copied so far.", "pool", "kind")
	workBytes = figureOf("work_bytes",
		"Bytes that those under way have written so far; 0 where data is shared or removed.",
		"pool", "kind")
)

func (from Sources) tellWork(say say) {
	for pool, all := range from.Work() {
		for _, kind := range volume.WorkKinds {
			var running, files, bytes float64
			for _, one := range all {
				if one.Kind == kind {
					running++
					files += float64(one.State.Files)
					bytes += float64(one.State.Bytes)
				}
			}
			say(workRunning, running, pool, kind)
			say(workFiles, files, pool, kind)
			say(workBytes, bytes, pool, kind)
		}
	}
}

var (
	ready = figureOf("ready", "1 if claims can be provisioned, 0 if they wait for the daemon or "+
		"for the API; pools have pool_open.")
	apiUp = figureOf("api_up",
		"1 if the API was read and nothing is wrong with it now, 0 if claims wait for it.")
	credentialExpiry = figureOf("credential_expiry_timestamp_seconds", "When the credential ends "+
		"with which this daemon talks to the API server; absent if that is not known.")
	renewedBy = figureOf("credential_renewed_by_timestamp_seconds", "When this daemon has renewed "+
		"the credential, unless that fails; absent if it does not renew it.")
	apiLast = figureOf("api_last_success_timestamp_seconds", "When the API server last took a "+
		"request of this daemon or sent it something; 0 is never.")
	inForce = figureOf("config_in_force",
		"1 if the configuration on disk is the one in force, 0 if it has errors, needs a restart, "+
			"or was changed and not reloaded.")
	dropped = figure{prometheus.NewDesc(namespace+"_events_dropped_total", "Events on claims, "+
		"volumes and pods that were not written, because too many waited for the API.",
		[]string{"type"}, nil), prometheus.CounterValue}
)

func (from Sources) tellHealth(say say) {
	now, last := from.Health(), 0.0
	if !now.LastSuccess.IsZero() {
		last = float64(now.LastSuccess.UnixMilli()) / 1000
	}
	say(ready, boolean(now.Ready))
	say(apiUp, boolean(now.APIUp))
	say(apiLast, last)
	if !now.CredentialExpiry.IsZero() {
		say(credentialExpiry, float64(now.CredentialExpiry.Unix()))
	}
	if !now.CredentialRenewedBy.IsZero() {
		say(renewedBy, float64(now.CredentialRenewedBy.Unix()))
	}
	say(inForce, boolean(now.ConfigInForce))
	say(dropped, float64(now.DroppedNormal), "Normal")
	say(dropped, float64(now.DroppedWarning), "Warning")
}
