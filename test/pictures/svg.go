package main

import (
	"bytes"
	"fmt"
	"html"
)

// Lengths in pixels.
const (
	width  = 820
	names  = 330 // the names' column
	widest = width - names - 90
	row    = 22
	margin = 12
)

// Colours: ours, and all others.
const (
	oursColour   = "#1f6feb"
	othersColour = "#8c959f"
)

// svg draws horizontal bars, all to one scale.
func (p picture) svg(groups []group, machine string) []byte {
	var text bytes.Buffer
	most, y := largest(groups), margin+row
	line := func(x int, anchor, colour, style, words string) {
		fmt.Fprintf(&text, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\" fill=\"%s\"%s>%s</text>\n", x, y, anchor, colour, style, html.EscapeString(words))
	}
	line(margin, "start", "#1f2328", ` font-weight="bold"`, p.title+", "+p.unit)
	for _, g := range groups {
		if g.name != "" {
			y += row + row/3
			line(margin, "start", "#1f2328", "", g.name)
		}
		for _, b := range g.bars {
			y += row
			colour := othersColour
			if b.ours {
				colour = oursColour
			}
			length := max(1, int(b.value/most*widest))
			line(names-8, "end", "#1f2328", "", b.name)
			fmt.Fprintf(&text, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/>\n", names, y-row+8, length, row-6, colour)
			line(names+length+6, "start", "#1f2328", "", number(b.value))
		}
	}
	y += row + row/3
	line(margin, "start", "#59636e", ` font-size="11"`, machine)
	return fmt.Appendf(nil, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"13\">\n"+
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n%s</svg>\n", width, y+margin, text.Bytes())
}

// largest is the largest value, not 0.
func largest(groups []group) float64 {
	most := 1e-9
	for _, g := range groups {
		for _, b := range g.bars {
			most = max(most, b.value)
		}
	}
	return most
}

// number has three digits, or as many as it takes.
func number(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
