package crash

import (
	"fmt"
	"io"
	"strings"
)

// row is what came of one operation.
type row struct {
	name   string
	all    bool     // every point was to be tried
	points int      // that were recorded
	kills  int      // at one of them
	missed []string // points that did not come when they were tried
	counts [kinds]int
	broken int      // cases with faults
	shown  []string // the first faults
}

// blame notes the faults of one case.
func (r *row) blame(when string, faults []fault) {
	if len(faults) == 0 {
		return
	}
	r.broken++
	for _, f := range faults {
		r.counts[f.kind]++
		if len(r.shown) < 10 {
			r.shown = append(r.shown, when+": "+f.String())
		}
	}
}

// missedMax is the part of an operation's points that may have come once and never again.
const missedMax = 10 // one in ten

// ok: nothing is wrong, something was tried, and if all was to be, nearly all was.
func (r *row) ok() bool {
	return r.broken == 0 && r.kills > 0 && !(r.all && len(r.missed)*missedMax > r.points)
}

func (r *row) String() string {
	return fmt.Sprintf("%-42s %6d %6d %6d %6d %6d %6d", r.name, r.points, r.kills, len(r.missed), r.counts[leak], r.counts[loss], r.counts[double])
}

// report is the whole table.
type report []*row

// print reports whether everything is proven.
func (all report) print(out io.Writer) bool {
	sum, ok := row{name: "all"}, len(all) > 0
	fmt.Fprintf(out, "\n%-42s %6s %6s %6s %6s %6s %6s\n", "operation", "points", "kills", "missed", "leaks", "losses", "double")
	for _, r := range all {
		fmt.Fprintln(out, r)
		ok = ok && r.ok()
		sum.points, sum.kills, sum.missed = sum.points+r.points, sum.kills+r.kills, append(sum.missed, r.missed...)
		for k := range kinds {
			sum.counts[k] += r.counts[k]
		}
	}
	fmt.Fprintln(out, &sum)
	for _, r := range all {
		if len(r.shown) > 0 {
			fmt.Fprintf(out, "\n%s:\n  %s\n", r.name, strings.Join(r.shown, "\n  "))
		}
		if r.kills == 0 {
			fmt.Fprintf(out, "\n%s: the daemon was never killed\n", r.name)
		}
	}
	all.printMissed(out)
	return ok
}

// printMissed names the points that came when they were recorded and not when they were to be
// killed at.
func (all report) printMissed(out io.Writer) {
	for _, r := range all {
		if len(r.missed) > 0 {
			fmt.Fprintf(out, "\n%s: recorded, and did not come again: %s\n", r.name, strings.Join(r.missed, "; "))
		}
	}
}
