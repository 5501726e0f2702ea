package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
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
	losses        losses
}

// rate is the requests a second while the phase lasted: of the fair one with those until all was settled.
func (r row) rate() float64 { return float64(r.tally.sum()) / r.lasted.Seconds() }

// result is everything that is told in the end.
type result struct {
	begin time.Time
	scope string
	seed  uint64
	rows  []row
	left  []string // phases that were not played
	kept  int      // directories with data of volumes that a restored server forgot
	back  int      // claims that it remembered
}

func (r *result) sum() (n int) {
	for _, row := range r.rows {
		n += row.losses.sum()
	}
	return n
}

func (r *result) print() {
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
			len(row.losses[madeTwice]), row.losses.sum()-len(row.losses[madeTwice]))
	}
	r.printFaults()
	fmt.Printf("the restored server had forgotten the volumes of %d directories with data, which were kept, and remembered %d claims that had been deleted\n", r.kept, r.back)
	if late := r.late(); late > 0 {
		fmt.Printf("%d volumes were made once more for claims that were being deleted, and removed again\n", late)
	}
	if len(r.left) > 0 {
		fmt.Println("not played:", strings.Join(r.left, ", "))
	}
	r.printLosses()
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

func (r *result) printLosses() {
	fmt.Println("lost")
	for _, kind := range kinds {
		var all []string
		for _, row := range r.rows {
			for _, one := range row.losses[kind] {
				all = append(all, row.phase.name+": "+one)
			}
		}
		fmt.Printf("  %-48s %6d\n", kind, len(all))
		slices.Sort(all)
		for _, one := range all[:min(len(all), 5)] {
			fmt.Println("    " + one)
		}
	}
	verdict := "nothing was lost"
	if n := r.sum(); n > 0 {
		verdict = fmt.Sprintf("LOST: %d", n)
	}
	fmt.Printf("scope %s: %s, seed %d, in %s\n", r.scope, verdict, r.seed, time.Since(r.begin).Round(time.Second))
}
