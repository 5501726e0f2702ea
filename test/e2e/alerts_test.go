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

// records begins with a daemon that serves its metrics at the address and is well. It waits until
// the volumes of pool fast were counted, which is after the start.
func (w *environment) records(alert, address string) *recording {
	w.Helper()
	rules, err := alerts.Rules(rig.Root())
	w.Must(err)
	i := slices.IndexFunc(rules, func(r alerts.Rule) bool { return r.Name == alert })
	if i < 0 {
		w.Fatalf("no alert %s", alert)
	}
	r := &recording{w: w, address: address, rules: rules, rule: rules[i]}
	if r.kept, err = r.rule.Kept(rig.Root()); !goldenfile.Updating() {
		w.Must(err)
	}
	r.well = r.await("while it is well", func(now alerts.Samples) bool {
		counted := now[`hostpath_provisioner_volumes{pool="fast",state="missing"}`] != ""
		return counted && (goldenfile.Updating() || now.Has(r.kept.Well))
	})
	return r
}

// await waits until the daemon serves what it should, and returns that.
func (r *recording) await(when string, is func(alerts.Samples) bool) (now alerts.Samples) {
	r.w.Helper()
	served := false
	defer func() {
		if !served {
			r.w.Logf("want %s\n%v\nis\n%v", r.rule.Name, r.kept, r.rule.Record(r.well, now))
		}
	}()
	r.w.Eventually(r.rule.Name+" reads, "+when+", what is kept", func() bool {
		now = alerts.Served(r.rules, scraped(r.address), time.Now())
		served = len(now) > 0 && is(now)
		return served
	})
	return now
}

// fires compares what is served in the alert's state.
func (r *recording) fires() {
	r.w.Helper()
	now := r.await("in its state", func(now alerts.Samples) bool {
		state := r.rule.Record(r.well, now).State
		return goldenfile.Updating() || maps.Equal(state, r.kept.State)
	})
	r.compare(r.rule.Record(r.well, now))
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
	r.kept = got
	goldenfile.Compare(r.w, r.rule.File(rig.Root()), got.Text(r.rule, test+" (test/e2e)"))
}

// resolves waits until the gauges are as they were, and none of the state is left. Counters stay.
func (r *recording) resolves() {
	r.w.Helper()
	r.await("after its state", func(now alerts.Samples) bool {
		for _, part := range []alerts.Samples{r.kept.Well, r.kept.State} {
			for series := range part {
				if !strings.Contains(series, "_total") && now[series] != r.kept.Well[series] {
					return false
				}
			}
		}
		return true
	})
}
