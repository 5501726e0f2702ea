package e2e

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/alerts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/goldenfile"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// recording is what a daemon serves of the series that an alert reads, beside what is kept of it in
// packaging/prometheus/recorded. go test -update writes that.
type recording struct {
	w       *environment
	address string
	rules   []alerts.Rule
	rule    alerts.Rule
	kept    alerts.Recording
	well    alerts.Samples
}

// records begins with a daemon that serves its metrics at the address and is well.
func (w *environment) records(alert, address string) *recording {
	w.Helper()
	rules, err := alerts.Rules(rig.Root())
	w.Must(err)
	i := slices.IndexFunc(rules, func(r alerts.Rule) bool { return r.Name == alert })
	if i < 0 {
		w.Fatalf("no alert %s", alert)
	}
	r := &recording{w: w, address: address, rules: rules, rule: rules[i]}
	r.kept, err = r.rule.Kept(rig.Root())
	if !goldenfile.Updating() {
		w.Must(err)
	}
	r.serves("while it is well", r.kept.Well, goldenfile.Updating())
	r.well = r.now()
	return r
}

func (r *recording) now() alerts.Samples {
	return alerts.Served(r.rules, scraped(r.address), time.Now())
}

// serves waits until the daemon serves these samples, or any at all.
func (r *recording) serves(when string, want alerts.Samples, any bool) {
	r.w.Helper()
	var now alerts.Samples
	defer func() {
		if !any && !now.Has(want) {
			r.w.Logf("%s: a daemon serves\n%v\nwant\n%v", r.rule.Name, now, want)
		}
	}()
	r.w.Eventually("what is served "+when, func() bool {
		now = r.now()
		return len(now) > 0 && (any || now.Has(want))
	})
}

// fires compares what is served in the alert's state.
func (r *recording) fires() {
	r.w.Helper()
	r.serves("in the state", r.kept.State, goldenfile.Updating())
	r.compare(r.rule.Record(r.well, r.now()))
}

// unreached compares what is served while the daemon is well, for an alert whose state no test
// reaches.
func (r *recording) unreached() {
	r.w.Helper()
	r.compare(alerts.Recording{Well: r.rule.Record(r.well, r.well).Well})
}

func (r *recording) compare(got alerts.Recording) {
	r.w.Helper()
	test, _, _ := strings.Cut(r.w.Name(), "/")
	goldenfile.Compare(r.w, r.rule.File(rig.Root()), got.Text(r.rule, test+" (test/e2e)"))
}

// resolves waits until the gauges are as they were, and none is more.
func (r *recording) resolves() {
	r.w.Helper()
	kept, err := r.rule.Kept(rig.Root())
	r.w.Must(err)
	gauges := maps.Clone(kept.Well)
	maps.DeleteFunc(gauges, func(series, _ string) bool {
		return strings.Contains(series, "_total")
	})
	r.serves("after the state", gauges, false)
	r.w.Eventually("what was served in the state alone is gone", func() bool {
		now := r.now()
		for series := range kept.State {
			_, was := kept.Well[series]
			if _, is := now[series]; is && !was {
				return false
			}
		}
		return true
	})
}
