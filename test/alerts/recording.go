package alerts

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Samples are series, as /metrics has them, and their values.
type Samples map[string]string

// Served are the samples of a page of metrics that some alert reads. What differs from run to run
// is left out of the values: of a counter there is 1 for all that is more than 0, and of a point in
// time how far it is from now, in seconds and rounded to hours. Names of namespaces and volumes are
// left out as well: of several volumes of claims with the same name there is one.
func Served(rules []Rule, page string, now time.Time) Samples {
	all := Samples{}
	for series, value := range samples(page) {
		if !slices.ContainsFunc(rules, func(r Rule) bool { return r.Reads(series) }) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil:
		case counts(series):
			value = fmt.Sprint(min(n, 1))
		case times(series):
			value = fmt.Sprint(int(math.Round((n-float64(now.Unix()))/3600)) * 3600)
		}
		all[named.ReplaceAllString(series, `$1="any"`)] = value
	}
	return all
}

var named = regexp.MustCompile(`\b(namespace|volume)="[^"]*"`)

// samples are all of a page.
func samples(page string) Samples {
	all := Samples{}
	for line := range strings.Lines(page) {
		if at := strings.LastIndexByte(line, ' '); at > 0 && line[0] != '#' {
			all[line[:at]] = strings.TrimSpace(line[at:])
		}
	}
	return all
}

// counted are the counters of a page.
func counted(page string) Samples {
	all := samples(page)
	maps.DeleteFunc(all, func(series, _ string) bool { return !counts(series) })
	return all
}

func counts(series string) bool { return strings.HasSuffix(metricOf(series), "_total") }

func times(series string) bool { return strings.HasSuffix(metricOf(series), "_timestamp_seconds") }

// moves reports whether a point in time is a new one at each scrape, of a daemon that is well.
func moves(series string) bool {
	return strings.HasSuffix(metricOf(series), "_last_success_timestamp_seconds")
}

func metricOf(series string) string {
	metric, _, _ := strings.Cut(series, "{")
	return metric
}

// changes reports whether a daemon in whatever state serves another value now and then. What a
// volume takes is measured at any time after the start.
func changes(series string) bool {
	metric := metricOf(series)
	return times(metric) || strings.HasSuffix(metric, "_bytes") ||
		metric == "hostpath_provisioner_pool_checks_total"
}

// Recording is what a daemon serves while it is well, and in the state of an alert.
type Recording struct{ Well, State Samples }

// Record keeps what the alert reads, and of what others read all that differs between the two: it
// may not have them fire.
func (r Rule) Record(well, state Samples) Recording {
	kept := Recording{Samples{}, Samples{}}
	keep := func(series string) {
		if value, is := well[series]; is {
			kept.Well[series] = value
		}
		if value, is := state[series]; is {
			kept.State[series] = value
		}
	}
	for _, all := range []Samples{well, state} {
		for series := range all {
			differs := well[series] != state[series] && !changes(series)
			if differs || r.Reads(series) {
				keep(series)
			}
		}
	}
	return kept
}

const (
	head  = "# What a daemon serves while it is well, of what %s reads, and of what changes with it.\n"
	state = "# In the alert's state. %s.\n"
)

// Text is the file of a recording. by tells what writes it.
func (r Recording) Text(rule Rule, by string) string {
	return fmt.Sprintf(head, prefix+rule.Name) + r.Well.text() + fmt.Sprintf(state, by) + r.State.text()
}

func (s Samples) text() (text string) {
	for _, series := range slices.Sorted(maps.Keys(s)) {
		text += series + " " + s[series] + "\n"
	}
	return text
}

// File is where the recording of an alert is, below the repository's root.
func (r Rule) File(root string) string {
	return filepath.Join(root, "packaging", "prometheus", "recorded", r.Name+".prom")
}

// Kept reads the recording of an alert. The error is that of os.ReadFile.
func (r Rule) Kept(root string) (kept Recording, err error) {
	text, err := os.ReadFile(r.File(root))
	well, state, _ := strings.Cut(string(text), "\n# In the ")
	return Recording{samples(well), samples("# " + state)}, err
}

// Has reports whether each of the other's samples is among these.
func (s Samples) Has(other Samples) bool {
	for series, value := range other {
		if s[series] != value {
			return false
		}
	}
	return true
}
