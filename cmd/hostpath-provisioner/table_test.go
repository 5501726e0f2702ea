package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// On a terminal no line is wider than that, and nothing is lost; elsewhere nothing is broken.
func TestTableOfATerminal(t *testing.T) {
	rows := [][]string{{"node-a", "closed: NotMounted", strings.Repeat("word ", 40) + "end"},
		{"node-b", "open", strings.Repeat("x", 200)}, {"nöde-c", "", "ü"}}
	for _, columns := range []int{0, 40, 80, 120, 1000} {
		var out bytes.Buffer
		table := newTable(&terminal{to: &out, columns: columns}, "NODE", "STATUS", "MESSAGE")
		for _, row := range rows {
			table.row(row...)
		}
		if err := table.flush(); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		for line := range strings.Lines(text) {
			if w := utf8.RuneCountInString(strings.TrimSpace(line)); columns > 0 && w > columns {
				t.Errorf("%d columns: %d: %s", columns, w, line)
			}
		}
		if strings.Count(text, "x") != 200 || strings.Count(text, "word") != 40 {
			t.Errorf("%d columns: something is lost:\n%s", columns, text)
		}
		if n := strings.Count(text, "\n"); columns == 0 && n != 4 {
			t.Errorf("%d lines without a terminal", n)
		}
	}
}

// Colours are for what something says of a state, and others' text brings none.
func TestColours(t *testing.T) {
	var out bytes.Buffer
	table := newTable(&terminal{to: &out, columns: 80, colours: true}, "POOL", "STATUS")
	table.row("fast", "closed: NotMounted")
	table.row("\x1b[31mslow", "open")
	if err := table.flush(); err != nil {
		t.Fatal(err)
	}
	want := "POOL          STATUS\n" +
		"fast          \x1b[31mclosed: NotMounted\x1b[0m\n" +
		"\\x1b[31mslow  \x1b[32mopen\x1b[0m\n"
	if got := out.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
