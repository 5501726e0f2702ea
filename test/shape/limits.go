package main

import "fmt"

const (
	longestLines = 60  // of any function
	longestFile  = 450 // lines of any file, tests included
	columns      = 100 // of a line, a tab as 4
)

// wideAllowed is how many lines with more columns there may be in all: as many as there are, so
// that each change leaves fewer. A new line has no excuse.
const wideAllowed = 9884

// exceeded returns a sentence for each limit that does not hold.
func exceeded(all []goPackage) (over []string) {
	wide := 0
	for _, p := range all {
		over = append(over, p.tooLong()...)
		wide += p.wide()
	}
	if wide > wideAllowed {
		over = append(over, fmt.Sprintf("%d lines have more than %d columns, %d may", wide, columns, wideAllowed))
	}
	return over
}

// tooLong names the functions and files of a package that are too long by themselves.
func (p goPackage) tooLong() (over []string) {
	for _, s := range p.code {
		for _, f := range s.functions {
			if f.lines > longestLines {
				over = append(over, fmt.Sprintf("%s has %d lines, want %d at the most", f.name, f.lines, longestLines))
			}
		}
	}
	for _, s := range p.longFiles() {
		over = append(over, fmt.Sprintf("%s has %d lines, want %d at the most", s.name, s.lines, longestFile))
	}
	return over
}
