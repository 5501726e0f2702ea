package crash

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/crash/killer"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// faultsMax is after how many points with faults an operation is given up.
const faultsMax = 3

// trial is an operation whose points are recorded, and at each of which something is killed.
type trial struct {
	name  string
	whose string // the points that are tried begin with it
	most  int    // points to try, 0: all
	play  player
}

// player plays an operation once: something dies at the point, or nothing if that is "" or does not
// come.
type player func(point string) (hit string, points []string, faults []fault)

// prover records and kills.
type prover struct {
	*harness.Program
	ctx     context.Context
	opt     options
	killers []*killer.Killer
}

// watch is a killer that listens at a socket.
func (e *prover) watch(socket string, s killer.Scope) *killer.Killer {
	k := harness.Need(killer.New(socket, s))(e, "listening at "+socket)
	e.Cleanup(k.Close)
	e.killers = append(e.killers, k)
	return k
}

// in is an operation in something that is made when it is played first.
func in[E any](made func() E, play func(E, string) (string, []string, []fault)) player {
	return func(point string) (string, []string, []fault) { return play(made(), point) }
}

// tryAll tries those that the command line chose.
func (e *prover) tryAll(all []trial) (rows report) {
	for _, t := range all {
		if e.ctx.Err() == nil && e.opt.only.MatchString(t.name) {
			rows = append(rows, e.try(t))
		}
	}
	return rows
}

// finish prints everything.
func (e *prover) finish(all report) {
	for _, k := range e.killers {
		for _, call := range k.Strangers() {
			e.Fault(unknown, "%s", call)
		}
	}
	if !all.print(os.Stdout) {
		e.Fault(notProven, "see the table")
	}
	e.Report(notProven, unknown)
}

// try records an operation's points and kills at each of them.
func (e *prover) try(t trial) *row {
	r := &row{name: t.name, all: t.most == 0}
	var points []string
	for range e.opt.records {
		_, recorded, faults := t.play("")
		r.blame("not killed", faults)
		points = union(points, recorded)
	}
	points = slices.DeleteFunc(e.opt.tried(points), func(point string) bool { return !strings.HasPrefix(point, t.whose) })
	r.points = len(points)
	for _, i := range some(len(points), t.most, e.opt.seed) {
		// Where not all are tried, one that does not come gives its place to the one before it.
		for !e.tryAt(t, points[i], r) && t.most > 0 && i > 0 {
			i--
		}
	}
	e.Say("%s", r)
	return r
}

// tryAt reports whether the point is done with: something was killed there, or nothing more is
// tried. What the daemon does has no fixed order where it does two things at once, and a
// connection's pieces are cut as the network likes: a point that does not come is tried again.
func (e *prover) tryAt(t trial, point string, r *row) bool {
	for range e.opt.tries {
		if e.ctx.Err() != nil || r.broken >= faultsMax {
			return true
		}
		hit, _, faults := t.play(point)
		r.blame("killed at "+point, faults)
		if hit != "" {
			r.kills++
		}
		if e.opt.printAll {
			fmt.Printf("    %q: killed %t, %v\n", point, hit != "", faults)
		}
		if hit != "" || len(faults) > 0 {
			return true
		}
	}
	r.missed = append(r.missed, point)
	return false
}

// union adds the points of b that are not in a.
func union(a, b []string) []string {
	for _, p := range b {
		if !slices.Contains(a, p) {
			a = append(a, p)
		}
	}
	return a
}

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
