package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// result is everything that is told in the end.
type result struct {
	seed    uint64
	lasted  time.Duration // the storm
	settled time.Duration // until all claims were, after it
	emptied time.Duration // until all were gone
	changes *mountChanges
	gate    []gateTimes
	// promised is below what the gate's times have to be, 0: they are not judged.
	promised time.Duration
	reopened bool           // the pool was closed, and a volume made in it later
	reasons  map[string]int // in the daemon's log

	created, deleted, survivors        int // claims
	during, volumes, undecidable, gone int // volume objects: made in the storm, ever, not judged, gone
}

func (r *result) print(p *harness.Program) {
	fmt.Println()
	r.printGate()
	if r.changes != nil {
		r.printStorm()
	}
	p.Report(kinds...)
}

func (r *result) printStorm() {
	fmt.Printf("mount changes in %s, seed %d (busy: refused by the kernel while the daemon worked there, tried again)\n", r.lasted.Round(time.Second), r.seed)
	total := 0
	for _, a := range acts {
		fmt.Printf("  %-40s %8d  busy %d\n", a.name, r.changes.count[a.name], r.changes.busy[a.name])
		total += r.changes.count[a.name]
	}
	fmt.Printf("  %-40s %8d\n", "all", total)
	fmt.Println("the daemon's reasons in the log: " + counted(r.reasons))
	fmt.Println("claims and volumes")
	for _, line := range []struct {
		what string
		n    int
	}{
		{"claims created", r.created}, {"claims deleted in the storm", r.deleted}, {"claims left after it", r.survivors},
		{"volumes published in the storm", r.during}, {"volumes looked for on the disk", r.volumes},
		{"of them gone before they were looked for", r.undecidable}, {"volumes removed", r.gone},
	} {
		fmt.Printf("  %-40s %8d\n", line.what, line.n)
	}
	fmt.Printf("settled %.1f s after the storm, empty %.1f s after the last deletion\n", r.settled.Seconds(), r.emptied.Seconds())
}

func (r *result) printGate() {
	if len(r.gate) == 0 {
		return
	}
	fmt.Println("from a mount change to the closed gate, in ms: by \"since\" in the daemon's status file")
	fmt.Printf("  %-34s %6s  %-23s  %s\n", "", "", "from the call", "from its return")
	fmt.Printf("  %-34s %6s  %7s %7s %7s  %7s %7s %7s\n", "", "times", "p50", "p99", "max", "p50", "p99", "max")
	for _, t := range r.gate {
		fmt.Println(t.line())
	}
	fmt.Println(r.unmounts().line())
	if r.promised == 0 {
		fmt.Println("  not judged")
	}
}

// unmounts are both kinds of unmount together: the first two acts.
func (r *result) unmounts() gateTimes {
	t := gateTimes{act: "both kinds of unmount"}
	for _, g := range r.gate[:min(2, len(r.gate))] {
		t.since, t.after = append(t.since, g.since...), append(t.after, g.after...)
	}
	return t
}

func counted(all map[string]int) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if all[key] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", key, all[key]))
		}
	}
	return strings.Join(parts, ", ")
}
