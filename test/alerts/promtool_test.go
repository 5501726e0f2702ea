package alerts

import (
	"fmt"
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
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

const root = "../.."

// beside are alerts that fire, after their own time, where another one does.
var beside = map[string]string{
	"ChecksStandStill": "NotReady", // a loop that stands still provisions nothing
}

// before is for how many minutes a daemon is well, in the tests of promtool, before the state.
const before = 5

// Each alert has a recording of a real daemon in its state, of which recorded_test.yaml is written,
// which make alerts plays.
func TestRecorded(t *testing.T) {
	rules := hosttest.Need(Rules(root))(t)
	text := "# Written by go test ./test/alerts -update of what is in recorded: each alert fires in its\n" +
		"# state, after its time, and resolves with it.\nrule_files: [rules.yaml]\nevaluation_interval: 1m\ntests:\n"
	for _, r := range rules {
		kept, err := r.Kept(root)
		if err != nil {
			t.Error(err)
			continue
		}
		if maps.Equal(kept.Well, kept.State) {
			t.Errorf("%s: nothing is recorded that differs in its state", r.Name)
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(kept.Well)), r.Reads) &&
			!slices.ContainsFunc(slices.Collect(maps.Keys(kept.State)), r.Reads) {
			t.Errorf("%s reads nothing of what is recorded for it", r.Name)
		}
		text += played(r, rules, kept)
	}
	files := hosttest.Need(os.ReadDir(filepath.Join(root, "packaging/prometheus/recorded")))(t)
	for _, f := range files {
		is := func(r Rule) bool { return r.Name+".prom" == f.Name() }
		if !slices.ContainsFunc(rules, is) {
			t.Errorf("%s is of no alert", f.Name())
		}
	}
	goldenfile.Compare(t, filepath.Join(root, "packaging/prometheus/recorded_test.yaml"), text)
}

// times of the test of one alert, in minutes.
type timing struct{ fires, resolves int }

func (r Rule) timing() (t timing) {
	t.fires = before + r.pending() + 1
	window := int(r.Window / time.Minute)
	if r.Whole {
		t.fires += window
	}
	t.resolves = t.fires + window + 6 // what is not scraped any more is seen for five minutes
	return t
}

func (r Rule) pending() int { return int(r.For / time.Minute) }

// played is the test of one alert: well, in the state for as long as it takes, and well again. A
// counter stays as it is in the state.
func played(r Rule, rules []Rule, kept Recording) string {
	at := r.timing()
	text := fmt.Sprintf("  - name: %s\n    interval: 1m\n    input_series:\n", r.Name)
	line := func(series, values string) {
		metric, labels, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
		if labels != "" {
			labels += ","
		}
		text += fmt.Sprintf("      - series: '%s{%sinstance=\"a\",job=\"hostpath-provisioner\"}'\n"+
			"        values: '%s'\n", metric, labels, values)
	}
	if !r.Reads("up") {
		line("up", fmt.Sprintf("1x%d", at.resolves))
	}
	all := maps.Clone(kept.Well)
	maps.Copy(all, kept.State)
	for _, series := range slices.Sorted(maps.Keys(all)) {
		line(series, values(series, kept, at))
	}
	text += "    promql_expr_test:\n"
	for _, minute := range []int{before - 1, at.fires - 2, at.fires, at.resolves} {
		if minute == at.fires-2 && r.pending() == 0 {
			continue // it is not pending
		}
		text += fmt.Sprintf("      - expr: group by (alertname) (ALERTS{alertstate=\"firing\"})\n"+
			"        eval_time: %dm\n        exp_samples: [%s]\n", minute, firing(r, rules, minute))
	}
	return text
}

// firing are the samples of what fires at a minute of an alert's test.
func firing(r Rule, rules []Rule, minute int) string {
	var names []string
	for _, other := range rules {
		is := other.Name == r.Name || other.Name == beside[r.Name]
		if is && other.timing().fires <= minute && minute <= r.timing().fires {
			names = append(names, fmt.Sprintf(`{labels: '{alertname="%s"}', value: 1}`, prefix+other.Name))
		}
	}
	return strings.Join(names, ", ")
}

// values are those of one series, in promtool's notation. Prometheus marks one as stale that a
// scrape does not have any more.
func values(series string, kept Recording, at timing) string {
	well, state := kept.Well[series], kept.State[series]
	if grew(well) {
		return growing(at)
	}
	all := phase(series, well, "", before, 0)
	all += " " + phase(series, state, well, at.fires+1-before, before)
	if counts(series) {
		well = state
	}
	return all + " " + phase(series, well, state, at.resolves-at.fires, at.fires+1)
}

// phase is so many minutes of one value, "" for none. A point in time was recorded as its distance
// from the time of the scrape, which is here the minute.
func phase(series, value, was string, minutes, minute int) string {
	switch {
	case value == "" && was != "" && minutes > 1:
		return fmt.Sprintf("stale _x%d", minutes-1)
	case value == "" && was != "":
		return "stale"
	case value == "":
		return fmt.Sprintf("_x%d", minutes)
	}
	step := ""
	if n, err := strconv.ParseFloat(value, 64); times(series) && err == nil {
		value = fmt.Sprint(n + float64(60*minute))
		if moves(series) {
			step = "+60"
		}
	}
	return fmt.Sprintf("%s%sx%d", value, step, minutes-1) // that many more
}

// growing is a counter that stands still in the state: six a minute, as checks of a pool.
func growing(at timing) string {
	const each = 6
	stands := 1 + each*before
	return fmt.Sprintf("1+%dx%d %dx%d %d+%dx%d", each, before-1, stands, at.fires-before,
		stands+each, each, at.resolves-at.fires-1)
}

// What rules_test.yaml has no alert fire for are series that daemons have served, with invented
// values.
func TestInvented(t *testing.T) {
	rules := hosttest.Need(Rules(root))(t)
	served, read := Samples{}, 0
	for _, r := range rules {
		kept, _ := r.Kept(root) // TestRecorded has the error
		maps.Copy(served, kept.Well)
		maps.Copy(served, kept.State)
	}
	text := hosttest.Need(os.ReadFile(root + "/packaging/prometheus/rules_test.yaml"))(t)
	ours := regexp.MustCompile(`instance="a",job="hostpath-provisioner",?`)
	for _, m := range regexp.MustCompile(`'(hostpath_[^']*)'`).FindAllSubmatch(text, -1) {
		series := strings.TrimSuffix(ours.ReplaceAllString(string(m[1]), ""), "{}")
		for _, r := range rules {
			if r.Reads(series) {
				if read++; served[series] == "" {
					t.Errorf("%s reads %s, which no daemon has served", r.Name, series)
				}
			}
		}
	}
	if read < 4 {
		t.Errorf("%d series", read)
	}
}
