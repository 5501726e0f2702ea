// Package pages gives the commands of the documents to programs that run them, as they stand there,
// and keeps account: what was not taken is told.
//
// It does not run anything, and it does not know whether what was taken was run, or held: its
// caller ends at the first command that does not.
package pages

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Pages are the documents of a repository, and what was taken of them.
type Pages struct {
	root  string
	taken map[Block]bool
}

// Block is a fenced piece of a page.
type Block struct {
	Page     string // "README.md", or a name in docs
	Heading  string // of the second level; "" before the first
	Language string // "sh" for commands
	Number   int    // from 0, among those of its language below its heading
	Text     string
}

// String is the block's place.
func (b Block) String() string { return fmt.Sprintf("%s, %q, block %d", b.Page, b.Heading, b.Number) }

// Open returns the pages of the repository at root: README.md and docs/*.md.
func Open(root string) *Pages { return &Pages{root: root, taken: map[Block]bool{}} }

// Take returns the blocks of a language below a heading, or only those of these numbers. That there
// are none is an error.
func (p *Pages) Take(page, heading, language string, numbers ...int) ([]Block, error) {
	all, err := p.Blocks(page)
	if err != nil {
		return nil, err
	}
	var found []Block
	for _, b := range all {
		if b.Heading == heading && b.Language == language && (len(numbers) == 0 || slices.Contains(numbers, b.Number)) {
			p.taken[b] = true
			found = append(found, b)
		}
	}
	if len(found) < max(1, len(numbers)) {
		return nil, fmt.Errorf("%s has no such block of %q below %q: %v", page, language, heading, numbers)
	}
	return found, nil
}

// Left are a page's blocks of commands that were not taken.
func (p *Pages) Left(page string) ([]Block, error) {
	all, err := p.Blocks(page)
	return slices.DeleteFunc(all, func(b Block) bool { return b.Language != "sh" || p.taken[b] }), err
}

var (
	fence   = regexp.MustCompile("(?ms)^```([a-z ]*)\n(.*?)^```$")
	heading = regexp.MustCompile("(?m)^## .*$")
)

// Blocks are all of a page, in order. That does not take them.
func (p *Pages) Blocks(page string) ([]Block, error) {
	path := filepath.Join(p.root, "docs", page)
	if page == "README.md" {
		path = filepath.Join(p.root, page)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	text := string(data)
	var all []Block
	count := map[[2]string]int{}
	for _, at := range fence.FindAllStringSubmatchIndex(text, -1) {
		b := Block{Page: page, Heading: lastHeading(text[:at[0]]), Language: text[at[2]:at[3]], Text: text[at[4]:at[5]]}
		key := [2]string{b.Heading, b.Language}
		b.Number = count[key]
		count[key]++
		all = append(all, b)
	}
	return all, nil
}

// lastHeading looks at text outside of blocks only: a comment in a shell's block may look like one.
func lastHeading(text string) string {
	all := heading.FindAllString(fence.ReplaceAllString(text, ""), -1)
	if len(all) == 0 {
		return ""
	}
	return strings.TrimPrefix(all[len(all)-1], "## ")
}
