package main

import "fmt"

// faultsMax is after how many points with faults an operation is given up.
const faultsMax = 3

// prove records an operation's points and kills at each of them.
func (w *world) prove(op operation) *row {
	r := &row{name: op.name, all: w.opt.points == 0}
	var points []string
	for range w.opt.records {
		_, recorded, faults := w.newTrial(op).play("")
		r.blame("nobody killed", faults)
		points = union(points, recorded)
	}
	r.points = len(points)
	for _, i := range some(len(points), w.opt.points, w.opt.seed) {
		// Where not all are tried, one that does not come gives its place to the one before it.
		for !w.proveAt(op, points[i], r) && w.opt.points > 0 && i > 0 {
			i--
		}
	}
	w.say("%s", r)
	return r
}

// proveAt says whether the point is done with: the daemon was killed there, or nothing more is tried.
// What the daemon does has no fixed order where it does two things at once, and a connection's pieces
// are cut as the network likes: a point that does not come is tried again.
func (w *world) proveAt(op operation, point string, r *row) bool {
	for range w.opt.tries {
		if w.ctx.Err() != nil || r.broken >= faultsMax {
			return true
		}
		hit, _, faults := w.newTrial(op).play(point)
		r.blame("killed at "+point, faults)
		if hit != "" {
			r.kills++
		}
		if w.opt.printAll {
			fmt.Printf("    %q: killed %t, %v\n", point, hit != "", faults)
		}
		if hit != "" || len(faults) > 0 {
			return true
		}
	}
	r.missed = append(r.missed, point)
	return false
}
