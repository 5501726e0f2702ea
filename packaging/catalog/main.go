// Command catalog prints the journal's message catalog (journalctl --catalog) from
// docs/troubleshooting.md, so that a reason is explained in one place.
package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/systemd"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintln(stderr, "usage: catalog TROUBLESHOOTING.MD")
		return 2
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		fmt.Fprintln(stderr, "catalog:", err)
		return 1
	}
	for _, e := range entries(string(text)) {
		fmt.Fprint(stdout, e)
	}
	return 0
}

// entry is what stands below one reason's heading.
type entry struct{ reason, text string }

// entries are the headings of the third level: the reasons (docs.TestReasons).
func entries(markdown string) []entry {
	var all []entry
	for _, part := range regexp.MustCompile(`(?m)^### `).Split(markdown, -1)[1:] {
		reason, text, _ := strings.Cut(part, "\n")
		text, _, _ = strings.Cut(text, "\n## ")
		all = append(all, entry{reason, plain(text)})
	}
	return all
}

const about = `-- %s
Subject: hostpath-provisioner: %s
Defined-By: hostpath-provisioner
Documentation: man:hostpath-provisioner(8)
Documentation: file:/usr/share/doc/hostpath-provisioner/docs/troubleshooting.md

%s

`

// String is the entry in the form of https://systemd.io/CATALOG/.
func (e entry) String() string {
	return fmt.Sprintf(about, systemd.MessageID(e.reason), e.reason, e.text)
}

var link = regexp.MustCompile(`\[([^\]]+)\]\([^)]+\)`)

// plain takes away the marks of Markdown. Commands are indented, so that no line begins as an entry
// does.
func plain(markdown string) string {
	var b strings.Builder
	code := false
	for line := range strings.Lines(link.ReplaceAllString(strings.TrimSpace(markdown), "$1") + "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			code = !code
		case code:
			b.WriteString("    " + line)
		default:
			b.WriteString(strings.NewReplacer("`", "", "*", "").Replace(line))
		}
	}
	return strings.TrimSpace(b.String())
}
