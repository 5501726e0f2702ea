package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mutant is one breakage of the product and the proof that must notice it.
type mutant struct {
	Name    string
	Promise string // that it breaks
	File    string // relative to the repository's root
	Patch   patch
	Proof   proof
	Source  string // file and line of its entry
}

// proof is a run of tests.
type proof struct {
	Package string // relative to the repository's root
	Run     string // for -test.run
}

func (p proof) String() string { return p.Package + " -run " + p.Run }

// top selects the tests, without their subtests.
func (p proof) top() string {
	top, _, _ := strings.Cut(p.Run, "/")
	return top
}

// wait is how long a proof takes beside others: what runs the daemon itself comes last.
func (p proof) wait() int {
	if strings.HasPrefix(p.Package, "test/") {
		return 1
	}
	return 0
}

// listDir has the entries, relative to the repository's root.
const listDir = "test/mutants/list"

// readList reads all entries, in the order of the files' names.
func readList(root string) ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(root, listDir, "*.txt"))
	if err != nil {
		return nil, err
	}
	var all []mutant
	var errs []error
	seen := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		some, err := parse(filepath.Base(file), string(text))
		errs = append(errs, err)
		for _, m := range some {
			if other, twice := seen[m.Name]; twice {
				errs = append(errs, fmt.Errorf("%s: %q is the name of %s, too", m.Source, m.Name, other))
			}
			seen[m.Name] = m.Source
		}
		all = append(all, some...)
	}
	if len(all) == 0 {
		errs = append(errs, fmt.Errorf("no entry in %s", filepath.Join(root, listDir)))
	}
	return all, errors.Join(errs...)
}

// parse reads the entries of one file. They are separated by empty lines; a line that begins with
// "#" is a comment. An entry has
//
//	name: the promise that is broken
//	path/of/the/file.go
//	  a line that stays, if the next one alone is not unique
//	- the line as it is
//	+ the line as it becomes
//	? package Regexp of the proof
func parse(file, text string) (all []mutant, err error) {
	var errs []error
	var lines []string
	start := 0
	for i, line := range append(strings.Split(text, "\n"), "") {
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) != "":
			if len(lines) == 0 {
				start = i + 1
			}
			lines = append(lines, line)
		case len(lines) > 0:
			m, err := parseOne(lines)
			if m.Source = fmt.Sprintf("%s:%d", file, start); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", m.Source, err))
			}
			all, lines = append(all, m), nil
		}
	}
	return all, errors.Join(errs...)
}

func parseOne(lines []string) (m mutant, err error) {
	if len(lines) < 4 {
		return m, errors.New("an entry has at least 4 lines")
	}
	named := false
	if m.Name, m.Promise, named = strings.Cut(lines[0], ": "); !named || strings.Contains(m.Name, " ") {
		return m, fmt.Errorf("%q is not \"name: promise\"", lines[0])
	}
	m.File = lines[1]
	last, is := strings.CutPrefix(lines[len(lines)-1], "? ")
	if m.Proof.Package, m.Proof.Run, named = strings.Cut(last, " "); !is || !named {
		return m, fmt.Errorf("%q is not \"? package regexp\"", lines[len(lines)-1])
	}
	if _, err := regexp.Compile(m.Proof.Run); err != nil {
		return m, err
	}
	m.Patch, err = parsePatch(lines[2 : len(lines)-1])
	return m, err
}

// patch replaces consecutive lines of a file. How they are indented and aligned does not count.
type patch []patchLine

type patchLine struct {
	op   byte // ' ' stays, '-' goes, '+' comes
	text string
}

func parsePatch(lines []string) (p patch, err error) {
	for _, line := range lines {
		if !strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "- ") && !strings.HasPrefix(line, "+ ") && line != "+" {
			return nil, fmt.Errorf("%q is no line of a patch", line)
		}
		l := patchLine{line[0], strings.TrimSpace(line[1:])}
		if l.op != '+' {
			l.text = plain(l.text)
		}
		p = append(p, l)
	}
	if !slices.ContainsFunc(p, func(l patchLine) bool { return l.op == '-' }) {
		return nil, errors.New("the patch takes nothing away")
	}
	return p, nil
}

// plain is a line without its alignment, which gofmt changes with the lines around it.
func plain(line string) string { return strings.Join(strings.Fields(line), " ") }

// old are the lines that must be there.
func (p patch) old() (lines []string) {
	for _, l := range p {
		if l.op != '+' {
			lines = append(lines, l.text)
		}
	}
	return lines
}

// apply returns the text with the patch, an error if its old lines are not there exactly once.
func (p patch) apply(text string) (string, error) {
	lines, old := strings.Split(text, "\n"), p.old()
	at, found := -1, 0
	for i := range len(lines) - len(old) + 1 {
		same := true
		for j := range old {
			same = same && plain(lines[i+j]) == old[j]
		}
		if same {
			at, found = i, found+1
		}
	}
	if found != 1 {
		return "", fmt.Errorf("%q is there %d times, not once", strings.Join(old, " / "), found)
	}
	var now []string
	for i, l := range p {
		indent := lines[at][:len(lines[at])-len(strings.TrimLeft(lines[at], " \t"))]
		switch l.op {
		case '+':
			now = append(now, indent+l.text)
		case ' ':
			now = append(now, lines[at+len(p[:i].old())])
		}
	}
	return strings.Join(slices.Concat(lines[:at], now, lines[at+len(old):]), "\n"), nil
}

// mutate returns the entry's file as it becomes.
func (m mutant) mutate(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return "", err
	}
	now, err := m.Patch.apply(string(text))
	if err != nil {
		return "", fmt.Errorf("%s: %w", m.File, err)
	}
	return now, nil
}

// missing returns which part of a proof does not exist: "" if there is a test of that name.
func (p proof) missing(root string) string {
	_, why := p.find(root)
	return why
}

// find returns the build constraint of the files that have a proof's tests, "" for none, and which
// part of the proof does not exist.
func (p proof) find(root string) (tag, why string) {
	files, _ := filepath.Glob(filepath.Join(root, p.Package, "*_test.go"))
	if len(files) == 0 {
		return "", "package " + p.Package + " has no tests"
	}
	top := p.top()
	wanted, found := regexp.MustCompile(top), false
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err.Error()
		}
		for _, test := range testName.FindAllSubmatch(text, -1) {
			if !wanted.Match(test[1]) {
				continue
			}
			found = true
			if constraint := buildTag.FindSubmatch(text); constraint != nil {
				tag = string(constraint[1])
			}
		}
	}
	if !found {
		return "", "package " + p.Package + " has no test " + top
	}
	return tag, ""
}

var (
	testName = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)
	buildTag = regexp.MustCompile(`^//go:build (\w+)\n`)
)
