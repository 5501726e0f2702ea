package pages

import (
	"fmt"
	"regexp"
	"strings"
)

// Sample returns an error unless what a program said ends as a sample of a page does, the block of
// "text" of this number below its heading. What Comparable leaves out is no difference, and a line
// that the page ends with "..." may go on.
func (p *Pages) Sample(said, page, heading string, number int) error {
	blocks, err := p.Take(page, heading, "text", number)
	if err != nil {
		return err
	}
	want := strings.Split(Comparable(blocks[0].Text), "\n")
	got := strings.Split(Comparable(said), "\n")
	got = got[max(0, len(got)-len(want)):]
	for i, line := range want {
		begins, cut := strings.CutSuffix(line, "...")
		if len(got) < len(want) || got[i] != line && !(cut && strings.HasPrefix(got[i], begins)) {
			return fmt.Errorf("%s shows\n%s\nand what was said ends otherwise:\n%s",
				blocks[0], strings.Join(want, "\n"), strings.Join(got, "\n"))
		}
	}
	return nil
}

var (
	blanks   = regexp.MustCompile(` +`)
	versions = regexp.MustCompile(`\bv[0-9]+\.[0-9]+\.[0-9]+[^\s,]*`)
	uids     = regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`)
	markers  = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)
	numbers  = regexp.MustCompile(`[0-9]+(\.[0-9]+)?|\b([KMG]i)?B\b`)
)

// Comparable is a text without what differs from one machine to another: numbers, sizes, versions,
// UIDs, the IDs of markers, and the width of columns.
func Comparable(text string) string {
	for _, of := range []*regexp.Regexp{versions, uids, markers, numbers} {
		text = of.ReplaceAllString(text, "#")
	}
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(text)) {
		lines = append(lines, strings.TrimSpace(blanks.ReplaceAllString(line, " ")))
	}
	return strings.Join(lines, "\n")
}
