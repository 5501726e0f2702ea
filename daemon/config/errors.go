package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one thing that is wrong, and where.
type Error struct {
	File string // as given to Load, or beside it
	Line int    // from 1; 0 where no line says it (a key that is absent, a file that cannot be read)
	Key  string // "pool.fast.path"; "" for the file as a whole
	Text string
	// Own: a pool shares files with a directory of the daemon.
	Own bool
	// Untrusted: a user other than root can write what root's commands believe (ErrUntrusted).
	Untrusted bool
}

func (e Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	b.WriteString(": ")
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	b.WriteString(e.Text)
	return b.String()
}

// Errors is everything that is wrong, one line each, in the order of the files and their lines.
type Errors []Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Untrusted reports whether one is that others can write what root's commands believe.
func (e Errors) Untrusted() bool {
	return slices.ContainsFunc(e, func(one Error) bool { return one.Untrusted })
}

// order sorts findings as a reader meets them: files in the order they were read, then lines, then
// what no line says.
func order(found []Error, files []string) []Error {
	slices.SortStableFunc(found, func(a, b Error) int {
		return cmp.Or(
			cmp.Compare(slices.Index(files, a.File), slices.Index(files, b.File)),
			cmp.Compare(uint(a.Line-1), uint(b.Line-1)), // 0 becomes the largest
			cmp.Compare(a.Key, b.Key),
		)
	})
	return slices.Compact(found)
}
