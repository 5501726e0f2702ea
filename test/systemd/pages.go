package main

import (
	"fmt"
	"regexp"
	"strings"
)

// runElsewhere are the commands of the pages in accounted that no step runs, and who does.
var runElsewhere = map[string]string{
	"install.md, Build the packages": "make, before this begins",
	"install.md, From a repository":  "make test-repository",
	"first-claim.md, 1. Kubernetes":  "make test-kubeadm",
	"first-claim.md, 7. The pod":     "make test-kubeadm: no kubelet is here",
	"README.md, Two commands":        "users who try this project",
	"README.md, From a repository":   "make test-repository",

	"uninstall.md, A PersistentVolume that is left": "otherPages, on another volume",
}

// accounted are the pages whose commands are all run.
var accounted = []string{"install.md", "first-claim.md", "upgrade.md", "uninstall.md", "README.md", "csi.md", "snapshots.md"}

// docs runs the commands under a heading of a document, as they stand there but for the replaced
// parts.
func (e *environment) docs(page, heading string, replace ...string) string {
	return e.runBlocks(page, heading, nil, replace)
}

// block is docs for one block of commands under a heading, the first being 0.
func (e *environment) block(number int, page, heading string, replace ...string) string {
	return e.runBlocks(page, heading, []int{number}, replace)
}

func (e *environment) runBlocks(page, heading string, numbers []int, replace []string) (said string) {
	blocks, err := e.pages.Take(page, heading, "sh", numbers...)
	e.Must(err, "the documentation")
	for _, b := range blocks {
		script := b.Text
		for i := 0; i < len(replace); i += 2 {
			if !strings.Contains(script, replace[i]) {
				e.Fatalf("%s does not say %q", b, replace[i])
			}
			script = strings.ReplaceAll(script, replace[i], replace[i+1])
		}
		said += e.sh(script) + "\n"
	}
	return said
}

// text is the first block of a language under a heading.
func (e *environment) text(page, heading, language string) string {
	blocks, err := e.pages.Take(page, heading, language, 0)
	e.Must(err, "the documentation")
	return blocks[0].Text
}

// sample wants what was said to end as the sample of a page does, apart from numbers and widths.
func (e *environment) sample(said, page, heading string, number int) {
	blocks, err := e.pages.Take(page, heading, "text", number)
	e.Must(err, "the documentation")
	if want := comparable(blocks[0].Text); !strings.HasSuffix("\n"+comparable(said), "\n"+want) {
		e.Fatalf("%s shows\n%s\nand what was said ends otherwise:\n%s", blocks[0], want, comparable(said))
	}
}

var (
	blanks   = regexp.MustCompile(` +`)
	versions = regexp.MustCompile(`\bv[0-9]+\.[0-9]+\.[0-9]+[^ ,]*`)
	uids     = regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`)
	numbers  = regexp.MustCompile(`[0-9]+(\.[0-9]+)?|\b([KMG]i)?B\b`)
)

// comparable is a text without what differs from one machine to another.
func comparable(text string) string {
	for _, of := range []*regexp.Regexp{versions, uids, numbers} {
		text = of.ReplaceAllString(text, "#")
	}
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(text)) {
		lines = append(lines, strings.TrimSpace(blanks.ReplaceAllString(line, " ")))
	}
	return strings.Join(lines, "\n")
}

// It fails when a page gets a command that no step runs.
func everyCommand(e *environment) { e.allRun(accounted, runElsewhere) }

// allRun wants every command of the pages to have been run, here or elsewhere.
func (e *environment) allRun(of []string, elsewhere map[string]string) {
	var left []string
	needed := map[string]bool{}
	for _, page := range of {
		blocks, err := e.pages.Left(page)
		e.Must(err, "the documentation")
		for _, b := range blocks {
			place := b.Page + ", " + b.Heading
			needed[place] = true
			if elsewhere[place] == "" {
				left = append(left, fmt.Sprintf("no step runs %s:\n%s", b, b.Text))
			}
		}
	}
	for place := range elsewhere {
		if !needed[place] {
			left = append(left, place+" has no command that is run elsewhere")
		}
	}
	if len(left) > 0 {
		e.Fatalf("%s", strings.Join(left, "\n"))
	}
}
