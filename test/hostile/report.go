package hostile

import (
	"fmt"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// printReport prints a line for each trick: how often it was played, what became of it, and the
// longest times on each filesystem.
func printReport(e *harness.Environment, fixtures []*fixture) {
	fmt.Println("the longest times in s on ext4, xfs, btrfs: until the PersistentVolume was gone, until its files were or were reported, for another claim meanwhile")
	fmt.Printf("  %-38s %6s %8s %9s  %17s  %17s  %17s\n", "trick", "times", "removed", "reported", "object", "files", "another claim")
	for _, trick := range tricks {
		times, removed, reported := 0, 0, 0
		longest := make([][3]time.Duration, len(fixtures))
		for i, s := range fixtures {
			for _, a := range s.acts {
				if a.trick != trick.name {
					continue
				}
				times++
				if a.reported == "" {
					removed++
				} else {
					reported++
				}
				l := &longest[i]
				l[0], l[1], l[2] = max(l[0], a.gone), max(l[1], a.removed), max(l[2], a.beside)
			}
		}
		fmt.Printf("  %-38s %6d %8d %9d ", trick.name, times, removed, reported)
		for k := range 3 {
			fmt.Printf(" ")
			for i := range fixtures {
				fmt.Printf(" %5.2f", longest[i][k].Seconds())
			}
		}
		fmt.Println()
	}
	fmt.Println()
	for _, trick := range tricks {
		if a := firstReported(fixtures, trick.name); a != nil {
			fmt.Printf("reported, %s:\n  %.300s\n", a.trick, a.reported)
		}
	}
	e.Report(kinds...)
}

func firstReported(fixtures []*fixture, trick string) *act {
	for _, s := range fixtures {
		for _, a := range s.acts {
			if a.trick == trick && a.reported != "" {
				return a
			}
		}
	}
	return nil
}
