// Package words formats text for people: sizes, and text from outside, which becomes one line of
// bounded length.
//
// A tenant chooses the annotations of its claims and the names of its files. Both are shown in the
// log, in events, in the status and in the output of commands. All of it passes through Line first.
//
// The package does not decide what is shown, and it does not make text safe as a path.
package words

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds in bytes.
const (
	// NameMax is the longest name of an object in Kubernetes (DNS-1123 subdomain, apimachinery
	// util/validation), and nearly the longest of a file.
	NameMax = 253
	// MessageMax is the API's limit for newer events (events.k8s.io note), kept for everything that
	// is said.
	MessageMax = 1024
)

// more stands where something was left out. No name in Kubernetes ends with it, so that a name that
// was cut is never another's.
const more = "..."

// Line is s on one line, in at most limit bytes: what a terminal would act on, and what is not
// UTF-8, is escaped as Go does, and what is too long is cut between two characters.
func Line(s string, limit int) string {
	cut := len(s) > limit
	if cut { // no more is looked at than can be shown
		s = s[:limit]
	}
	b := strings.Builder{}
	end := 0 // where the text can be cut so that more has room
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if cut && size == 1 && r == utf8.RuneError && !utf8.FullRuneInString(s) {
			break // the cut's doing
		}
		shown := s[:size]
		if r == utf8.RuneError && size == 1 || !strconv.IsPrint(r) {
			shown = strconv.Quote(shown)
			shown = shown[1 : len(shown)-1]
		}
		if b.Len()+len(shown) > limit {
			cut = true
			break
		}
		b.WriteString(shown)
		if b.Len() <= limit-len(more) {
			end = b.Len()
		}
		s = s[size:]
	}
	if !cut {
		return b.String()
	}
	return b.String()[:end] + more
}

// Name is Line for a name.
func Name(s string) string { return Line(s, NameMax) }

// Quoted is a name in quotation marks.
func Quoted(s string) string { return `"` + strings.ReplaceAll(Name(s), `"`, `\"`) + `"` }

// Ends is Line for a path, of which both ends are kept.
func Ends(s string, limit int) string {
	if len(s) <= limit {
		return Line(s, limit)
	}
	half := (limit - len(more)) / 2
	head, tail := Line(s[:half], half), s[len(s)-half:]
	for len(tail) > 0 && (!utf8.RuneStart(tail[0]) || len(Line(tail, limit)) > half) {
		tail = tail[1:]
	}
	return strings.TrimSuffix(head, more) + more + Line(tail, half)
}

// number is an amount or a time as messages have them: "427 MiB", "1.5Gi", "2m30s". Digits within
// names are none: those of pvc-868797d1 say which.
var number = regexp.MustCompile(`(^|[ (])[0-9][0-9A-Za-z.]*( [KMGTPE]?i?B\b)?`)

// Same is what two messages have in common that differ in numbers alone. The free space of a disk
// changes all the time, and what is said of it is not news each time.
func Same(message string) string { return number.ReplaceAllString(message, "${1}#") }

// Count writes a number of things: "1 volume", "3 volumes". what is a noun whose plural ends with
// an s.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Size writes a number of bytes for people, with a binary unit (IEC 80000-13) and rounded to the
// nearest as in "1023 KiB", "1.5 TiB" and "150 GiB": one decimal below 100, none from there on and
// none of bytes.
func Size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	value, unit := float64(n), 0
	for value >= 1023.5 && unit < len(units)-1 { // from there on it would be rounded to 1024
		value, unit = value/1024, unit+1
	}
	if unit == 0 || value >= 99.95 {
		return fmt.Sprintf("%.0f %s", value, units[unit])
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}
