package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Limits of what users read: README.md and docs/*.md, without docs/dev.
const (
	wordsInAll     = 30_000 // as wc -w counts
	wordsASentence = 30
	wordsACell     = 40
)

// wordsOf are limits of single pages: README.md is two screens.
var wordsOf = map[string]int{"README.md": 700, "docs/security.md": 2_000}

// Users' pages are short: in all, in each sentence and in each cell of a table.
func TestLimits(t *testing.T) {
	all := 0
	for _, d := range documents(t) {
		if strings.HasPrefix(d.name, "docs/dev/") {
			continue
		}
		words := len(strings.Fields(d.text))
		all += words
		if most, bounded := wordsOf[d.name]; bounded && words > most {
			t.Errorf("%s has %d words, more than %d", d.name, words, most)
		}
		for _, sentence := range sentences(d.text) {
			if n := countWords(prose(sentence)); n > wordsASentence {
				t.Errorf("%s: %d words in a sentence, more than %d: %s", d.name, n, wordsASentence, sentence)
			}
		}
		for _, cell := range cells(d.text) {
			if n := countWords(prose(cell)); n > wordsACell {
				t.Errorf("%s: %d words in a cell, more than %d: %s", d.name, n, wordsACell, cell)
			}
		}
	}
	if t.Logf("%d words", all); all > wordsInAll {
		t.Errorf("%d words in all, more than %d", all, wordsInAll)
	}
}

// The limits' test finds what is too long.
func TestLimitsFindWhatIsLong(t *testing.T) {
	long := strings.Repeat("word ", wordsASentence)
	for text, want := range map[string]int{
		long + "end. Short.":                  31,
		"- " + long + "end\n- short":          31,
		"A `code of many words` is one word.": 5,
		"A [link of two](to.md#some) counts.": 5,
	} {
		longest := 0
		for _, sentence := range sentences(text + "\n") {
			longest = max(longest, countWords(prose(sentence)))
		}
		if longest != want {
			t.Errorf("%q: %d words, want %d", text, longest, want)
		}
	}
	if got := cells("| a b | c. d |\n|---|---|\n"); !slices.Equal(got, []string{"a b", "c. d"}) {
		t.Errorf("cells %q", got)
	}
}

// countWords counts what has a letter or a digit.
func countWords(text string) (n int) {
	for _, field := range strings.Fields(text) {
		if strings.ContainsFunc(field, letterOrDigit) {
			n++
		}
	}
	return n
}

func letterOrDigit(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// prose has a word in the place of each piece of code, and no targets of links.
func prose(markdown string) string {
	text := regexp.MustCompile("`[^`]*`").ReplaceAllString(markdown, "code")
	return link.ReplaceAllString(text, "$1")
}

var (
	row      = regexp.MustCompile(`(?m)^\|.*\n`)
	aHeading = regexp.MustCompile(`(?m)^(?:#|!\[).*\n`)
	item     = regexp.MustCompile(`(?m)^ *(?:- |[0-9]+\. )`)
	blank    = regexp.MustCompile(`\n\s*\n`)
	end      = regexp.MustCompile(`[.?!][)*"]*\s`)
)

// sentences are those of paragraphs and of items of lists; a colon or a semicolon ends none.
func sentences(markdown string) (all []string) {
	for _, without := range []*regexp.Regexp{fence, row, aHeading} {
		markdown = without.ReplaceAllString(markdown, "\n\n")
	}
	for _, paragraph := range blank.Split(item.ReplaceAllString(markdown, "\n\n"), -1) {
		for _, sentence := range end.Split(paragraph+" ", -1) {
			all = append(all, strings.Join(strings.Fields(sentence), " "))
		}
	}
	return all
}

// cells are those of all tables.
func cells(markdown string) (all []string) {
	for _, line := range row.FindAllString(fence.ReplaceAllString(markdown, ""), -1) {
		for _, cell := range strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|") {
			if strings.Trim(cell, "- ") != "" {
				all = append(all, strings.TrimSpace(cell))
			}
		}
	}
	return all
}

// Reasons are found by their name: each part of the page has them in alphabetical order.
func TestReasonsAreInOrder(t *testing.T) {
	for _, part := range strings.Split(read(t, "troubleshooting.md"), "\n## ")[1:] {
		if names := headings(part, 3, 3); !slices.IsSorted(names) {
			t.Errorf("out of order: %q", names)
		}
	}
	if table := firstCells(t, "troubleshooting.md", "Cluster"); !slices.IsSorted(table) {
		t.Errorf("out of order: %q", table)
	}
}
