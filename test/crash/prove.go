package crash

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// faultsMax is after how many points with faults an operation is given up.
const faultsMax = 3

// trial is an operation whose points are recorded, and at each of which something is killed.
type trial struct {
	name  string
	whose string // the points that are tried begin with it
	most  int    // points to try, 0: all
	// play plays it once: something dies at the point, or nothing if that is "" or does not come.
	play func(point string) (hit string, points []string, faults []fault)
}

// prover records and kills.
type prover struct {
	*harness.Program
	ctx context.Context
	opt options
}

// try records an operation's points and kills at each of them.
func (e prover) try(t trial) *row {
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
func (e prover) tryAt(t trial, point string, r *row) bool {
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
