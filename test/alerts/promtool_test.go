package alerts

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/goldenfile"
)

const root = "../.."

const (
	prometheus = "the series is Prometheus' own"
	quotas     = "it takes project quotas, which only a kernel of test/vm has for certain"
)

// unrecorded are the alerts whose test is in rules_test.yaml, on values that are invented, and why
// no test has a real daemon in that state. Their series are those of a daemon that is well
// (recorded), but for those of quotas.
var unrecorded = map[string]string{
	"Down":             prometheus,
	"Absent":           prometheus,
	"NotReady":         "with the API up, a loop of the daemon has to have stood still for a minute",
	"ChecksStandStill": "a loop of the daemon has to have stood still for five minutes",
	"EventsDropped":    "4096 events have to wait at once, each of another object",
	"ClockOff":         "the clock is not a daemon's own: it would be that of all tests",
	"VolumeNearlyFull": quotas,
	"VolumeFull":       quotas,
	"ProjectsScarce":   quotas,
}

// before is for how many minutes a daemon is well, in the tests of promtool, before the state.
const before = 5

// Each alert has a recording of a real daemon in its state, or a reason why it has none and a test
// in rules_test.yaml. Of the recordings recorded_test.yaml is written, which make alerts plays.
func TestRecorded(t *testing.T) {
	rules, err := Rules(root)
	if err != nil {
		t.Fatal(err)
	}
	invented, err := os.ReadFile(filepath.Join(root, "packaging/prometheus/rules_test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := "# Written by go test ./test/alerts -update of what is in recorded: each alert fires alone in its state, after its\n" +
		"# time, and resolves with it.\nrule_files: [rules.yaml]\nevaluation_interval: 1m\ntests:\n"
	for _, r := range rules {
		kept, err := r.Kept(root)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		why := unrecorded[r.Name]
		own := why == prometheus || why == quotas
		if (err != nil) != own || (len(kept.State) == 0) != (why != "") {
			t.Errorf("%s: recorded %v in its state, %v; unrecorded: %q", r.Name, kept.State, err, why)
		}
		if by := strings.Contains(string(invented), "  - name: "+r.Name+"\n"); by != (why != "") {
			t.Errorf("%s is tested by rules_test.yaml: %t; unrecorded: %q", r.Name, by, why)
		}
		if len(kept.State) > 0 {
			text += played(r, kept)
		}
		read := slices.ContainsFunc(slices.Collect(maps.Keys(kept.Well)), r.Reads) ||
			slices.ContainsFunc(slices.Collect(maps.Keys(kept.State)), r.Reads)
		if err == nil && !read {
			t.Errorf("%s reads nothing of what is recorded for it", r.Name)
		}
	}
	files, err := os.ReadDir(filepath.Join(root, "packaging/prometheus/recorded"))
	for _, f := range files {
		if name := strings.TrimSuffix(f.Name(), ".prom"); !slices.ContainsFunc(rules, func(r Rule) bool { return r.Name == name }) {
			t.Errorf("%s is of no alert", f.Name())
		}
	}
	goldenfile.Compare(t, filepath.Join(root, "packaging/prometheus/recorded_test.yaml"), text)
}

// played is the test of one alert: well, in the state for as long as it takes, and well again. A
// counter stays as it is in the state.
func played(r Rule, kept Recording) string {
	pending, window := int(r.For/time.Minute), int(r.Window/time.Minute)
	fires := before + pending + 1
	if r.Whole {
		fires += window
	}
	resolves := fires + window + 6 // a series that ends is seen for five minutes
	text := fmt.Sprintf("  - name: %s\n    interval: 1m\n    input_series:\n", r.Name)
	line := func(series, values string) {
		metric, labels, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
		if labels != "" {
			labels += ","
		}
		text += fmt.Sprintf("      - series: '%s{%sinstance=\"a\",job=\"hostpath-provisioner\"}'\n"+
			"        values: '%s'\n", metric, labels, values)
	}
	line("up", fmt.Sprintf("1x%d", resolves))
	all := Samples{}
	for _, part := range []Samples{kept.Well, kept.State} {
		for series := range part {
			all[series] = ""
		}
	}
	for entry := range strings.Lines(all.text()) {
		series := strings.TrimSuffix(entry, " \n")
		metric, _, _ := strings.Cut(series, "{")
		well, state := kept.Well[series], kept.State[series]
		values := phase(well, before, 0, times(metric)) + " " +
			phase(state, fires+1-before, before, times(metric)) + " "
		switch {
		case counts(metric):
			well = state
		case well == "":
			values += "stale "
		}
		line(series, values+phase(well, resolves-fires, fires+1, times(metric)))
	}
	text += "    promql_expr_test:\n"
	for _, at := range []int{before - 1, fires - 2, fires, resolves} {
		if at < before && at != before-1 {
			continue // it is not pending
		}
		if r.For == 0 && at == fires-2 {
			continue
		}
		samples := "[]"
		if at == fires {
			samples = fmt.Sprintf(`[{labels: '{alertname="%s"}', value: 1}]`, prefix+r.Name)
		}
		text += fmt.Sprintf("      - expr: group by (alertname) (ALERTS{alertstate=\"firing\"})\n"+
			"        eval_time: %dm\n        exp_samples: %s\n", at, samples)
	}
	return text
}

// phase is promtool's notation for so many minutes of one value, "" for none. A point in time was
// recorded as its distance from the time of the scrape, which is here the minute.
func phase(value string, minutes, minute int, point bool) string {
	if value == "" {
		return fmt.Sprintf("_x%d", minutes)
	}
	if n, err := strconv.ParseFloat(value, 64); point && err == nil {
		value = fmt.Sprint(n + float64(60*minute))
	}
	return fmt.Sprintf("%sx%d", value, minutes-1) // that many more
}

// What rules_test.yaml invents are values: daemons have served the series that an alert reads.
func TestInvented(t *testing.T) {
	rules, err := Rules(root)
	if err != nil {
		t.Fatal(err)
	}
	served, read := Samples{}, 0
	for _, r := range rules {
		kept, _ := r.Kept(root) // TestRecorded has the error
		maps.Copy(served, kept.Well)
		maps.Copy(served, kept.State)
	}
	text, err := os.ReadFile(filepath.Join(root, "packaging/prometheus/rules_test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	ours := regexp.MustCompile(`instance="a",job="hostpath-provisioner",?`)
	for _, m := range regexp.MustCompile(`'(hostpath_[^']*)'`).FindAllSubmatch(text, -1) {
		series := strings.TrimSuffix(ours.ReplaceAllString(string(m[1]), ""), "{}")
		for _, r := range rules {
			if r.Reads(series) && unrecorded[r.Name] != quotas {
				if read++; served[series] == "" {
					t.Errorf("%s reads %s, which no daemon has served", r.Name, series)
				}
			}
		}
	}
	if read < 8 {
		t.Errorf("%d series", read)
	}
}
