package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
)

// table aligns columns. On a terminal no line is wider than that: cells of the widest columns go on
// in the next lines.
type table struct {
	w    io.Writer
	rows [][]string
}

func newTable(w io.Writer, columns ...string) *table {
	t := &table{w: w}
	if len(columns) > 0 {
		t.row(columns...)
	}
	return t
}

// row adds one line; an empty cell becomes "-".
func (t *table) row(cells ...string) {
	line := make([]string, len(cells))
	for i, cell := range cells {
		if line[i] = state.Printable(cell); cell == "" {
			line[i] = "-"
		}
	}
	t.rows = append(t.rows, line)
}

// narrowest is how narrow a column becomes at most: eight of them fit in 80, which is as many as a
// list has that is not wide.
const narrowest = 8

func (t *table) flush() error {
	on, _ := t.w.(*terminal)
	widths := t.widths()
	if on != nil && on.columns > 0 {
		narrow(widths, on.columns)
	}
	for i, row := range t.rows {
		cells, lines := make([][]string, len(row)), 1
		for c, cell := range row {
			cells[c] = []string{cell}
			if utf8.RuneCountInString(cell) > widths[c] {
				cells[c] = broken(cell, widths[c])
			}
			lines = max(lines, len(cells[c]))
		}
		for l := range lines {
			if err := t.line(on, widths, cells, l, i > 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// line writes the l-th line of a row.
func (t *table) line(on *terminal, widths []int, cells [][]string, l int, painted bool) error {
	var b strings.Builder
	for c, all := range cells {
		text := ""
		if l < len(all) {
			text = all[l]
		}
		pad := strings.Repeat(" ", max(0, widths[c]-utf8.RuneCountInString(text))+2)
		if c == len(cells)-1 {
			pad = ""
		}
		if on != nil && on.colours {
			if colour := colourOf(all[0]); painted && colour != "" && text != "" {
				text = colour + text + "\x1b[0m"
			}
		}
		b.WriteString(text + pad)
	}
	text := strings.TrimRight(b.String(), " ") + "\n"
	if len(cells) > 0 && l == 0 {
		text = b.String() + "\n"
	}
	if on != nil && on.colours {
		_, err := io.WriteString(on.to, text) // row made it printable
		return err
	}
	_, err := io.WriteString(t.w, text)
	return err
}

func (t *table) widths() []int {
	var widths []int
	for _, row := range t.rows {
		for c, cell := range row {
			if c == len(widths) {
				widths = append(widths, 0)
			}
			widths[c] = max(widths[c], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// narrow takes from the widest column until all fit, or none can become narrower.
func narrow(widths []int, most int) {
	for {
		sum, widest := 2*(len(widths)-1), 0
		for c, w := range widths {
			sum += w
			if w > widths[widest] {
				widest = c
			}
		}
		if len(widths) == 0 || sum <= most || widths[widest] <= narrowest {
			return
		}
		widths[widest]--
	}
}

// broken is a text in lines of at most so many characters, at spaces where there are some.
func broken(text string, most int) (lines []string) {
	for _, line := range wrapped(text, most) {
		for utf8.RuneCountInString(line) > most {
			all := []rune(line)
			lines, line = append(lines, string(all[:most])), string(all[most:])
		}
		lines = append(lines, line)
	}
	return lines
}

// colourOf is the colour of a cell that says how something stands, "" for none.
func colourOf(cell string) string {
	word, _, _ := strings.Cut(cell, " ")
	switch strings.TrimRight(word, ":;,") {
	case "open", "ready", "Bound":
		return "\x1b[32m"
	case "full", "cordoned", "NotReady", "waiting", "Released", "Terminating":
		return "\x1b[33m"
	case "closed", "silent", "gone", "unknown", "failed", "missing", "damaged", "orphaned":
		return "\x1b[31m"
	}
	return ""
}

// terminalOf is what is known of the terminal that a command writes to.
func terminalOf(w io.Writer) *terminal {
	t := &terminal{to: w}
	file, is := w.(*os.File)
	if !is {
		return t
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return t
	}
	t.columns = int(size.Col)
	t.colours = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return t
}

// clear begins an empty page on a terminal.
func (p *terminal) clear() {
	if p.columns > 0 {
		fmt.Fprint(p.to, "\x1b[H\x1b[2J")
	}
}

// terminal is where output goes: names of tenants' files, records and whatever else others wrote
// must not command it. Lines and columns are the program's own. No write ends within a character.
type terminal struct {
	to      io.Writer
	failed  error // of the first write that failed
	columns int   // how wide it is, 0: it is no terminal
	colours bool
}

// Write is part of io.Writer.
func (p *terminal) Write(text []byte) (int, error) {
	var safe bytes.Buffer
	rest := text
	for len(rest) > 0 {
		end := bytes.IndexAny(rest, "\n\t")
		if end < 0 {
			end = len(rest)
		}
		safe.WriteString(state.Printable(string(rest[:end])))
		if end < len(rest) {
			safe.WriteByte(rest[end])
			end++
		}
		rest = rest[end:]
	}
	if _, err := p.to.Write(safe.Bytes()); err != nil {
		if p.failed == nil {
			p.failed = err
		}
		return 0, err
	}
	return len(text), nil
}
