package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// row is what came of a phase.
type row struct {
	phase         phase
	limit         float64       // requests a second that were let pass
	lasted        time.Duration // the unkindness
	settled       time.Duration // until all was well, after it
	made, deleted int           // claims
	late          int           // volumes made again for claims that were being deleted
	tally         tally
	found         *harness.Findings
}

// rate is the requests a second while the phase lasted: of the fair one with those until all was
// settled.
func (r row) rate() float64 { return float64(r.tally.sum()) / r.lasted.Seconds() }

// result is everything that is told in the end.
type result struct {
	scope string
	seed  uint64
	rows  []row
	left  []string // phases that were not played
	kept  int      // directories with data of volumes that a restored server forgot
	back  int      // claims that it remembered
}

func (r *result) print(p *harness.Program) {
	fmt.Printf("\nscope %s\n%-10s %7s %8s  %6s %8s  %8s %6s %8s %7s  %6s %8s %6s\n", r.scope, "phase", "lasted", "settled",
		"claims", "deleted", "requests", "a sec", "busiest", "bound", "faults", "doubles", "lost")
	for _, row := range r.rows {
		bound, faults := "", 0
		if row.limit > 0 {
			bound = fmt.Sprintf("%.0f", row.limit)
		}
		for _, n := range row.tally.faults {
			faults += n
		}
		fmt.Printf("%-10s %6.1fs %7.1fs  %6d %8d  %8d %6.0f %8d %7s  %6d %8d %6d\n", row.phase.name, row.lasted.Seconds(),
			row.settled.Seconds(), row.made, row.deleted, row.tally.sum(), row.rate(), row.tally.busiest, bound, faults,
			row.found.Count(madeTwice), row.found.Count()-row.found.Count(madeTwice))
		p.Merge(row.found, row.phase.name+": ")
	}
	r.printFaults()
	fmt.Printf("the restored server had forgotten the volumes of %d directories with data, which were kept, and remembered %d claims that had been deleted\n", r.kept, r.back)
	if late := r.late(); late > 0 {
		fmt.Printf("%d volumes were made once more for claims that were being deleted, and removed again\n", late)
	}
	if len(r.left) > 0 {
		fmt.Println("not played:", strings.Join(r.left, ", "))
	}
	fmt.Printf("scope %s, seed %d\n", r.scope, r.seed)
	p.Report(kinds...)
}

func (r *result) late() (n int) {
	for _, row := range r.rows {
		n = max(n, row.late)
	}
	return n
}

func (r *result) printFaults() {
	fmt.Println("faults (refusals half of the time after the server had done what it was asked)")
	for _, row := range r.rows {
		var parts []string
		for _, f := range slices.Sorted(maps.Keys(row.tally.faults)) {
			parts = append(parts, fmt.Sprintf("%s %d", f, row.tally.faults[f]))
		}
		if len(parts) > 0 {
			fmt.Printf("  %-10s %s\n", row.phase.name, strings.Join(parts, ", "))
		}
	}
}
