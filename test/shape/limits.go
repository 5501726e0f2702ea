package main

import (
	"fmt"
	"strings"
)

const (
	shortFunction = 30   // lines; a function with as many is not short
	shortShare    = 0.95 // of the product's functions, and of those of the programs that test it
	longestLines  = 60   // of any function
	longestFile   = 450  // lines of any file, tests included
	testsToCode   = 0.8  // lines of tests for each line of code, in each package of the product
)

// ofTests reports whether a package is one of the programs and libraries that test the product.
func (p goPackage) ofTests() bool { return p.dir == "test" || strings.HasPrefix(p.dir, "test/") }

// exceeded returns a sentence for each limit that does not hold.
func exceeded(all []goPackage) []string {
	var product, tests []goPackage
	for _, p := range all {
		if p.ofTests() {
			tests = append(tests, p)
		} else {
			product = append(product, p)
		}
	}
	over := append(tooFewShort("the product", product), tooFewShort("its tests' programs", tests)...)
	for _, p := range all {
		over = append(over, p.tooLong()...)
	}
	for _, p := range product {
		if ratio, ok := p.ratio(); ok && ratio < testsToCode {
			over = append(over, fmt.Sprintf("%s has %.2f lines of tests for a line of code, want %g", p.dir, ratio, testsToCode))
		}
	}
	return over
}

// tooFewShort judges the share of short functions in all these packages together: one long function of four would be
// too much for a small package.
func tooFewShort(of string, packages []goPackage) []string {
	all, short := 0, 0
	for _, p := range packages {
		for _, lines := range p.functionLines() {
			all++
			if lines < shortFunction {
				short++
			}
		}
	}
	if share := float64(short); share < shortShare*float64(all) {
		return []string{fmt.Sprintf("%s: %d of %d functions have less than %d lines, want %g %%", of, short, all, shortFunction, 100*shortShare)}
	}
	return nil
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
