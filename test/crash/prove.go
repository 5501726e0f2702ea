package main

import "fmt"

// faultsMax is after how many points with faults an operation is given up.
const faultsMax = 3

// tries is how often a point is tried that does not come again. What the daemon does has no fixed
// order where it does two things at once, and a connection's pieces are cut as the network likes.
const tries = 3

// prove records an operation's points and kills at each of them.
func (w *world) prove(op operation) *row {
	r := &row{name: op.name}
	var points []string
	for range w.opt.records {
		_, recorded, faults := w.newTrial(op).play("")
		r.blame("nobody killed", faults)
		points = union(points, recorded)
	}
	r.points = len(points)
	for _, point := range some(points, w.opt.points, w.opt.seed) {
		if w.ctx.Err() != nil || r.broken >= faultsMax {
			break
		}
		w.proveAt(op, point, r)
	}
	w.say("%s", r)
	return r
}

func (w *world) proveAt(op operation, point string, r *row) {
	for range tries {
		hit, _, faults := w.newTrial(op).play(point)
		r.blame("killed at "+point, faults)
		if hit != "" {
			r.kills++
		}
		if w.opt.printAll {
			fmt.Printf("    %q: killed %t, %v\n", point, hit != "", faults)
		}
		if hit != "" || len(faults) > 0 {
			return
		}
	}
	r.missed = append(r.missed, point)
}
