// Package docs has the page of all reasons, for what explains one of them: the program, offline,
// and the journal's catalog. Its tests keep the documents true: what they name exists, what exists
// they name, and what they show can be read by what it is for.
//
// It will not have any other page, nor a word that is not on it.
package docs

import (
	_ "embed"
	"regexp"
	"strings"
)

// Troubleshooting is the page, in Markdown.
//
//go:embed troubleshooting.md
var Troubleshooting string

// Reason is what stands below one reason's heading, as plain text.
type Reason struct{ Name, Text string }

var heading = regexp.MustCompile(`(?m)^### `)

// Reasons are the headings of the third level of a page, in its order.
func Reasons(markdown string) []Reason {
	var all []Reason
	for _, part := range heading.Split(markdown, -1)[1:] {
		name, text, _ := strings.Cut(part, "\n")
		text, _, _ = strings.Cut(text, "\n## ")
		all = append(all, Reason{name, plain(text)})
	}
	return all
}

var link = regexp.MustCompile(`\[([^\]]+)\]\([^)]+\)`)

// plain takes away the marks of Markdown. Commands are indented, so that no line begins as an entry
// of a catalog does.
func plain(markdown string) string {
	var b strings.Builder
	code := false
	text := link.ReplaceAllString(strings.TrimSpace(markdown), "$1") + "\n"
	for line := range strings.Lines(text) {
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
