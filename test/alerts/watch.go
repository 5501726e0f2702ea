package alerts

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/goldenfile"
)

// Test is what brings a daemon into the state of an alert.
type Test interface {
	Helper()
	Eventually(what string, is func() bool)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// Watch is what a daemon serves of the series that an alert reads, beside what is kept of it in
// packaging/prometheus/recorded. With -update that is written.
type Watch struct {
	on    Test
	by    string
	root  string
	page  func() string
	rules []Rule
	rule  Rule
	kept  Recording
	well  Samples
	since Samples // of counters, when Mark was called
}

// NewWatch begins with a daemon that is well, once it serves what first wants. page returns what it
// serves, "" if nothing; by tells what writes what is kept below root.
func NewWatch(on Test, by, root, alert string, page func() string,
	first func(Samples) bool) *Watch {
	on.Helper()
	w := &Watch{on: on, by: by, root: root, page: page}
	err := w.read(alert)
	if err != nil {
		on.Fatalf("%s: %v", alert, err)
	}
	w.Mark()
	w.well = w.await("while it is well", func(now Samples) bool {
		grows := !w.rule.Still || slices.ContainsFunc(slices.Collect(maps.Values(now)), grew)
		return first(now) && grows && (goldenfile.Updating() || now.Has(w.kept.Well))
	})
	return w
}

func (w *Watch) read(alert string) (err error) {
	if w.rules, err = Rules(w.root); err != nil {
		return err
	}
	i := slices.IndexFunc(w.rules, func(r Rule) bool { return r.Name == alert })
	if i < 0 {
		return fmt.Errorf("no such alert")
	}
	w.rule = w.rules[i]
	if w.kept, err = w.rule.Kept(w.root); goldenfile.Updating() {
		err = nil
	}
	return err
}

// Mark is when the counters of an alert about one that stands still begin to grow, or do not.
func (w *Watch) Mark() { w.since = counted(w.page()) }

// grew is the mark on the value of a counter that has become larger since Mark.
func grew(value string) bool { return strings.HasSuffix(value, "+") }

func (w *Watch) now() Samples {
	page := w.page()
	now := Served(w.rules, page, time.Now())
	if !w.rule.Still {
		return now
	}
	for series, value := range counted(page) {
		was, _ := strconv.ParseFloat(w.since[series], 64)
		if is, err := strconv.ParseFloat(value, 64); err == nil && is > was && w.rule.Reads(series) {
			now[series] += "+"
		}
	}
	return now
}

// await waits until the daemon serves what it should, and returns that.
func (w *Watch) await(when string, is func(Samples) bool) (now Samples) {
	w.on.Helper()
	served := false
	defer func() {
		if !served {
			w.on.Logf("want %s\n%v\nis\n%v", w.rule.Name, w.kept, w.rule.Record(w.well, now))
		}
	}()
	w.on.Eventually(w.rule.Name+" reads, "+when+", what is kept", func() bool {
		now = w.now()
		served = (len(now) > 0 || len(w.well) > 0) && is(now)
		return served
	})
	return now
}

// Fires compares what is served in the alert's state.
func (w *Watch) Fires() {
	w.on.Helper()
	now := w.await("in its state", func(now Samples) bool {
		return goldenfile.Updating() || maps.Equal(w.rule.Record(w.well, now).State, w.kept.State)
	})
	got := w.rule.Record(w.well, now)
	text := got.Text(w.rule, w.by)
	if goldenfile.Updating() {
		if err := os.WriteFile(w.rule.File(w.root), []byte(text), 0o644); err != nil {
			w.on.Fatalf("%v", err)
		}
	}
	if want, err := os.ReadFile(w.rule.File(w.root)); err != nil || string(want) != text {
		w.on.Fatalf("%v; rewrite it with -update: got\n%s\nwant\n%s", err, text, want)
	}
	w.kept = got
}

// Resolves waits until the gauges are as they were, and none of the state is left. Counters stay,
// or grow again.
func (w *Watch) Resolves() {
	w.on.Helper()
	w.await("after its state", func(now Samples) bool {
		for _, part := range []Samples{w.kept.Well, w.kept.State} {
			for series := range part {
				stays := counts(series) && !grew(w.kept.Well[series])
				if !stays && now[series] != w.kept.Well[series] {
					return false
				}
			}
		}
		return true
	})
}
