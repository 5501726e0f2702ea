// Command versions writes the table of docs/dev/versions.md out of the results of the runs on other
// versions of Kubernetes, which `make test-versions` leaves in .build/versions.
//
//	versions table [.build/versions]   writes the rows of the versions that were run
//	versions kinds                     prints the names of one test of each kind, for go test -run
//
// It runs no test, and what of a version was not run again stays as it is.
package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

const page = "docs/dev/versions.md"

func run(args []string, stdout, stderr io.Writer) int {
	switch {
	case slices.Equal(args, []string{"kinds"}):
		fmt.Fprintf(stdout, "^(%s)$\n", strings.Join(names(), "|"))
		return 0
	case len(args) == 2 && args[0] == "table":
		if err := update(page, args[1]); err != nil {
			fmt.Fprintf(stderr, "versions: %v\n", err)
			return 1
		}
		return 0
	}
	fmt.Fprintln(stderr, "usage: versions kinds | table DIRECTORY")
	return 2
}

// update writes the table in a page anew, with a row for each version below dir.
func update(page, dir string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	releases, err := filepath.Glob(filepath.Join(dir, "*", "results"))
	if err != nil {
		return err
	}
	rows := map[string]string{}
	for _, file := range releases {
		name, err := os.ReadFile(filepath.Join(filepath.Dir(file), "release"))
		if err != nil {
			return err
		}
		results, err := os.Open(file)
		if err != nil {
			return err
		}
		release := strings.TrimPrefix(strings.TrimSpace(string(name)), "v")
		rows[release] = row(release, read(results))
		results.Close()
	}
	after, err := tables(string(text), rows)
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(after), 0o644)
}

// result is how a test ended, or a target of make, whose package is "".
type result struct{ ended, said string }

// key names a test: the last two words of its package, and its name.
type key struct{ pkg, name string }

// read reads results, of which the last one of a test counts (test/rerun, test/groups.sh).
func read(file io.Reader) map[key]result {
	all := map[key]result{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		field := strings.Split(lines.Text(), "\t")
		if len(field) != 4 {
			continue
		}
		pkg := field[1]
		if at := strings.LastIndex(pkg, "/test/"); at >= 0 {
			pkg = pkg[at+1:]
		}
		all[key{pkg, field[2]}] = result{field[0], field[3]}
	}
	return all
}

const notRun = "not run"

// row is that of a version.
func row(release string, results map[key]result) string {
	cells := []string{release}
	for _, f := range features {
		cells = append(cells, f.cell(results))
	}
	cells = append(cells, kubelets(results))
	for _, pkg := range packages {
		cells = append(cells, count(results, pkg))
	}
	return line(cells)
}

// cell is the names of the tests that showed it, or why none did.
func (f feature) cell(results map[key]result) string {
	for _, one := range f.tests {
		r, was := results[one]
		switch {
		case !was:
			return notRun
		case r.ended == "skip":
			return "lacks it: " + r.said
		case r.ended != "pass":
			return "**failed**: " + one.show()
		}
	}
	return f.show()
}

func (k key) show() string {
	switch {
	case k.pkg != "":
		return "`" + k.name + "` (" + k.pkg + ")"
	case strings.HasPrefix(k.name, "try-"): // of make trials
		return "`" + k.name + "`"
	}
	return "`make " + k.name + "`"
}

func (f feature) show() string {
	var all []string
	for _, one := range f.tests {
		all = append(all, one.show())
	}
	return strings.Join(all, ", ")
}

// kubelets are the stories of test/nodes that ran, and with which kubelets (test/nodes/run.sh).
func kubelets(results map[key]result) string {
	var all []string
	for one, r := range results {
		if one.pkg != "test/nodes" {
			continue
		}
		story, versions, _ := strings.Cut(one.name, " ")
		cell := "`" + story + "` (test/nodes) " + versions
		if r.ended != "pass" {
			cell = "**failed**: " + cell
		}
		all = append(all, cell)
	}
	slices.Sort(all)
	return cmp.Or(strings.Join(all, ", "), notRun)
}

// count tells how many tests of a package passed, and how many did not.
func count(results map[key]result, pkg string) string {
	n := map[string]int{}
	for k, r := range results {
		if k.pkg == pkg {
			n[r.ended]++
		}
	}
	if len(n) == 0 {
		return notRun
	}
	text := fmt.Sprintf("%d passed", n["pass"])
	if n["skip"] > 0 {
		text += fmt.Sprintf(", %d lack", n["skip"])
	}
	if n["fail"] > 0 {
		text += fmt.Sprintf(", **%d failed**", n["fail"])
	}
	return text
}

// The table is between these lines.
const (
	begin = "<!-- test/versions: begin -->"
	end   = "<!-- test/versions: end -->"
)

// tables replaces the rows of the minor versions of these releases in the page's table, and sorts
// it: there is one of each. What was not run again of a release stays.
func tables(text string, rows map[string]string) (string, error) {
	before, rest, found := strings.Cut(text, begin+"\n")
	was, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("the page has no lines %s and %s", begin, end)
	}
	all := map[string]map[string]string{} // by minor version and column
	var names []string
	for line := range strings.Lines(was) {
		cells := split(line)
		switch {
		case names == nil:
			names = cells
		case strings.HasPrefix(cells[0], "1."):
			all[minor(cells[0])] = named(names, cells)
		}
	}
	for release, row := range rows {
		all[minor(release)] = merge(all[minor(release)], named(columns(), split(row)))
	}
	lines := []string{line(columns()), strings.Repeat("|---", len(columns())) + "|"}
	for _, minor := range slices.Sorted(maps.Keys(all)) {
		var cells []string
		for _, name := range columns() {
			cells = append(cells, cmp.Or(all[minor][name], notRun))
		}
		lines = append(lines, line(cells))
	}
	return before + begin + "\n" + strings.Join(lines, "\n") + "\n" + end + after, nil
}

// merge is a row with what the row before it, of the same release, says of that which was not run,
// and of a whole package of which some tests were.
func merge(before, row map[string]string) map[string]string {
	if before["version"] != row["version"] {
		return row
	}
	for name, cell := range row {
		if was, is := passed(before[name]), passed(cell); cell == notRun || is > 0 && was > is {
			row[name] = cmp.Or(before[name], notRun)
		}
	}
	return row
}

// passed is the number in a cell of count, 0 of others and where a test failed.
func passed(cell string) (n int) {
	if _, err := fmt.Sscanf(cell, "%d passed", &n); err != nil || strings.Contains(cell, "failed") {
		return 0
	}
	return n
}

// named are the cells of a row by their columns.
func named(names, cells []string) map[string]string {
	all := map[string]string{}
	for i := range min(len(names), len(cells)) {
		all[names[i]] = cells[i]
	}
	return all
}

func split(line string) []string { return strings.Split(strings.Trim(line, "| \n"), " | ") }

func line(cells []string) string { return "| " + strings.Join(cells, " | ") + " |" }

// minor is 1.33 of 1.33.13.
func minor(release string) string { return release[:strings.LastIndexByte(release, '.')] }

func columns() []string {
	names := []string{"version"}
	for _, f := range features {
		names = append(names, f.name)
	}
	return append(append(names, "real kubelets"), packages...)
}
