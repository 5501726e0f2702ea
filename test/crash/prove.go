package main

import (
	"fmt"
	"slices"
)

// faultsMax is after how many points with faults an operation is given up.
const faultsMax = 3

// prove records an operation's points and kills at each of them.
func (e *environment) prove(op operation) *row {
	r := &row{name: op.name, all: e.opt.points == 0}
	var points []string
	for range e.opt.records {
		_, recorded, faults := e.newCase(op).play("")
		r.blame("not killed", faults)
		points = union(points, recorded)
	}
	points = e.opt.tried(points)
	r.points = len(points)
	for _, i := range some(len(points), e.opt.points, e.opt.seed) {
		// Where not all are tried, one that does not come gives its place to the one before it.
		for !e.proveAt(op, points[i], r) && e.opt.points > 0 && i > 0 {
			i--
		}
	}
	e.Say("%s", r)
	return r
}

// proveAt reports whether the point is done with: the daemon was killed there, or nothing more is tried.
// What the daemon does has no fixed order where it does two things at once, and a connection's pieces
// are cut as the network likes: a point that does not come is tried again.
func (e *environment) proveAt(op operation, point string, r *row) bool {
	for range e.opt.tries {
		if e.ctx.Err() != nil || r.broken >= faultsMax {
			return true
		}
		hit, _, faults := e.newCase(op).play(point)
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
