package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// printTable prints a line for each package, and one for all.
func printTable(to io.Writer, packages []goPackage) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "functions\tmedian\t95 %%\tlongest\tcode\ttests\tfiles over %d\tlines over %d\t  package\n", longestFile, columns)
	all := goPackage{dir: "all"}
	for _, p := range packages {
		fmt.Fprintln(w, p.row())
		all.code, all.tests = append(all.code, p.code...), append(all.tests, p.tests...)
	}
	fmt.Fprintln(w, all.row())
	return w.Flush()
}

func (p goPackage) row() string {
	lines := p.functionLines()
	return fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t  %s", len(lines),
		percentile(lines, 50), percentile(lines, 95), percentile(lines, 100),
		sum(p.code), sum(p.tests), len(p.longFiles()), p.wide(), p.dir)
}

// functionLines are the lengths of the functions of the code, sorted.
func (p goPackage) functionLines() (all []int) {
	for _, s := range p.code {
		for _, f := range s.functions {
			all = append(all, f.lines)
		}
	}
	slices.Sort(all)
	return all
}

// wide counts the lines with too many columns.
func (p goPackage) wide() (lines int) {
	for _, s := range slices.Concat(p.code, p.tests) {
		lines += s.wide
	}
	return lines
}

func (p goPackage) longFiles() (long []source) {
	for _, s := range slices.Concat(p.code, p.tests) {
		if s.lines > longestFile {
			long = append(long, s)
		}
	}
	return long
}

func sum(files []source) (lines int) {
	for _, s := range files {
		lines += s.lines
	}
	return lines
}

// percentile is the smallest value that so many of a hundred do not exceed, 0 without values.
func percentile(sorted []int, percent int) int {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(float64(len(sorted)*percent) / 100))
	return sorted[rank-1]
}
