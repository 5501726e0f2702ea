package alerts

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Samples are series, as /metrics has them, and their values.
type Samples map[string]string

// Served are the samples of a page of metrics that some alert reads. What differs from run to run
// is left out of the values: of a counter there is 1 for all that is more than 0, and of a point in
// time how far it is from now, in seconds and rounded to hours.
func Served(rules []Rule, page string, now time.Time) Samples {
	all := Samples{}
	for line := range strings.Lines(page) {
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || !slices.ContainsFunc(rules, func(r Rule) bool { return r.Reads(line[:at]) }) {
			continue
		}
		value := strings.TrimSpace(line[at:])
		n, err := strconv.ParseFloat(value, 64)
		switch metric, _, _ := strings.Cut(line[:at], "{"); {
		case err != nil:
		case counts(metric):
			value = fmt.Sprint(min(n, 1))
		case times(metric):
			value = fmt.Sprint(int(math.Round((n-float64(now.Unix()))/3600)) * 3600)
		}
		all[line[:at]] = value
	}
	return all
}

func counts(metric string) bool { return strings.HasSuffix(metric, "_total") }

func times(metric string) bool { return strings.HasSuffix(metric, "_timestamp_seconds") }

// changes reports whether a daemon in whatever state serves another value now and then. What a
// volume takes is measured at any time after the start.
func changes(metric string) bool {
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
			metric, _, _ := strings.Cut(series, "{")
			differs := well[series] != state[series] && !changes(metric)
			if differs || r.Reads(series) {
				keep(series)
			}
		}
	}
	return kept
}

const (
	head  = "# What a daemon serves while it is well, of what %s reads, and of what changes with it.\n"
	state = "# In the alert's state. %s records both: go test -update.\n"
	alone = "# No test has a daemon in the alert's state. %s records this: go test -update.\n"
)

// Text is the file of a recording, of which test writes it.
func (r Recording) Text(rule Rule, test string) string {
	text := fmt.Sprintf(head, prefix+rule.Name) + r.Well.text()
	if len(r.State) == 0 {
		return text + fmt.Sprintf(alone, test)
	}
	return text + fmt.Sprintf(state, test) + r.State.text()
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
	if err != nil {
		return kept, err
	}
	part := &kept.Well
	kept = Recording{Samples{}, Samples{}}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "# In the ") {
			part = &kept.State
		}
		if at := strings.LastIndexByte(line, ' '); !strings.HasPrefix(line, "#") && at > 0 {
			(*part)[line[:at]] = strings.TrimSpace(line[at:])
		}
	}
	return kept, nil
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
