// Command rerun is `go test` that tries a failed test once more, and says so.
//
//	rerun [flags of go test] packages
//
// The tests of the daemon's binary talk to an API server, a scheduler and a kernel under load, and
// there are hundreds: one that rarely fails makes many whole runs red, and people stop to read red
// runs. So a test that failed is run again, at most mostFailed of them, and what passes only then
// is listed at the end as unstable: it is a fault of the test or of the product, to be mended, with
// the output of the failure above. A test that fails twice fails the run.
//
// It does not try a package again that does not compile, and no test a third time.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// mostFailed is how many tests may fail and be tried again. When more fail, one cause is likely.
const mostFailed = 3

func main() {
	if !run(os.Stdout, os.Args[1:]) {
		os.Exit(1)
	}
}

// run runs `go test` with these arguments, and what failed again. It reports whether everything
// passed in the end.
func run(out io.Writer, args []string) bool {
	first := goTest(out, args)
	failed := first.failed()
	if len(failed) == 0 {
		return first.err == nil
	}
	if !first.again() {
		return false
	}
	for _, p := range failed {
		fmt.Fprintf(out, "again: %s\n", p.describe())
		if second := goTest(out, p.args(args)); second.err != nil || len(second.failed()) > 0 {
			return false
		}
	}
	for _, p := range failed {
		line := fmt.Sprintf("UNSTABLE: failed once, then passed: %s\n", p.describe())
		fmt.Fprint(out, line)
		keep("UNSTABLE", line) // the end of a whole run (test/groups.sh)
	}
	return true
}

// keep appends a line to the file that a variable names, if it does.
func keep(variable, line string) {
	name := os.Getenv(variable)
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(line)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "rerun: %s: %v\n", variable, err)
	}
}

// event is one line of `go test -json` (cmd/test2json).
type event struct {
	Action, Package, Test, Output, FailedBuild string
}

// results are those of one call of `go test`, by package.
type results struct {
	packages map[string]*result
	err      error // of go test; that tests failed is one
}

// result is a package's. Subtests count for the test that has them.
type result struct {
	name    string
	built   bool
	done    string // "pass", "fail", "skip"; "" while it runs
	running map[string][]string
	passed  []string
	broken  []string
}

// goTest runs `go test`, and prints of it what `go test` prints by itself.
func goTest(out io.Writer, args []string) results {
	r := results{packages: map[string]*result{}}
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = out
	lines, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.err = err
		return r
	}
	for input := bufio.NewReader(lines); ; {
		line, err := input.ReadString('\n')
		if line != "" {
			r.take(out, line)
		}
		if err != nil {
			break
		}
	}
	r.err = cmd.Wait()
	return r
}

// take uses one line. A line that is no event is passed on.
func (r results) take(out io.Writer, line string) {
	var e event
	if json.Unmarshal([]byte(line), &e) != nil {
		fmt.Fprint(out, line)
		return
	}
	if e.Package == "" { // of a build
		fmt.Fprint(out, e.Output)
		return
	}
	p := r.packages[e.Package]
	if p == nil {
		p = &result{name: e.Package, built: true, running: map[string][]string{}}
		r.packages[e.Package] = p
	}
	if e.Test == "" {
		p.ofPackage(out, e)
		return
	}
	p.ofTest(out, e)
}

// ofPackage uses an event of no test. Output of a test that runs, and that ends the whole process,
// is printed then, too.
func (p *result) ofPackage(out io.Writer, e event) {
	switch e.Action {
	case "output":
		if e.Output != "PASS\n" {
			fmt.Fprint(out, e.Output)
		}
	case "pass", "fail", "skip":
		p.done, p.built = e.Action, p.built && e.FailedBuild == ""
		for _, name := range slices.Sorted(maps.Keys(p.running)) {
			if said := strings.Join(p.running[name], ""); p.done == "fail" && !strings.HasSuffix(said, "=== PAUSE "+name+"\n") {
				fmt.Fprint(out, said)
			}
		}
	}
}

func (p *result) ofTest(out io.Writer, e event) {
	name, _, sub := strings.Cut(e.Test, "/")
	switch {
	case e.Action == "output":
		p.running[name] = append(p.running[name], e.Output)
	case sub:
	case e.Action == "run":
		p.running[name] = nil
	case e.Action == "pass", e.Action == "skip":
		p.note(e, name)
		p.passed = append(p.passed, name)
		delete(p.running, name)
	case e.Action == "fail":
		p.note(e, name)
		p.broken = append(p.broken, name)
		fmt.Fprint(out, strings.Join(p.running[name], ""))
		delete(p.running, name)
	}
}

// note appends how a test ended to the file that RESULTS names, of a whole run (test/versions): the
// result, the package, the test, and the last line that one said that was skipped.
func (p *result) note(e event, name string) {
	said := ""
	for _, line := range p.running[name] {
		if e.Action == "skip" && strings.HasPrefix(line, "    ") { // "    x_test.go:1: said"
			_, said, _ = strings.Cut(strings.TrimSpace(line), ": ")
		}
	}
	keep("RESULTS", strings.Join([]string{e.Action, p.name, name, said}, "\t")+"\n")
}

// failed are the packages that did not pass, in order of their names.
func (r results) failed() []*result {
	var failed []*result
	for _, name := range slices.Sorted(maps.Keys(r.packages)) {
		if p := r.packages[name]; p.done == "fail" || p.done == "" {
			failed = append(failed, p)
		}
	}
	return failed
}

// again reports whether what failed may be tried once more.
func (r results) again() bool {
	number := 0
	for _, p := range r.failed() {
		if !p.built {
			return false
		}
		number += max(1, len(p.broken))
	}
	return number <= mostFailed
}

// args are those for a second try of the package: all its tests but those that passed. So a test
// that ended the process takes none with it.
func (p *result) args(first []string) []string {
	var args, skipped []string
	for i, arg := range first {
		if i > 0 && first[i-1] == "-skip" {
			skipped = append(skipped, arg)
			continue
		}
		if !strings.HasPrefix(arg, "-") && !(i > 0 && takesValue(first[i-1])) {
			break
		}
		if arg != "-skip" { // the last one alone counts
			args = append(args, arg)
		}
	}
	names := make([]string, 0, len(p.passed))
	for _, name := range p.passed {
		names = append(names, regexp.QuoteMeta(name))
	}
	if len(names) > 0 {
		skipped = append(skipped, "^("+strings.Join(names, "|")+")$")
	}
	if len(skipped) > 0 {
		args = append(args, "-skip", strings.Join(skipped, "|"))
	}
	return append(args, p.name)
}

// takesValue reports whether the argument is a flag whose value is the next one.
func takesValue(flag string) bool {
	return slices.Contains([]string{"-timeout", "-p", "-parallel", "-run", "-tags"}, flag)
}

// describe names the package, and its tests that failed, or that ran when its process ended.
func (p *result) describe() string {
	names := slices.Clone(p.broken)
	for _, name := range slices.Sorted(maps.Keys(p.running)) {
		if said := p.running[name]; len(said) > 0 && !strings.HasPrefix(said[len(said)-1], "=== PAUSE") {
			names = append(names, name)
		}
	}
	return p.name + " " + strings.Join(names, " ")
}
