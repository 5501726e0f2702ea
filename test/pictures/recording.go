package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"os"
	"os/exec"
	"strings"
	"time"
)

// castName is the file of the recording, in docs/pictures; its picture has another suffix.
const castName = "demo.cast"

// The terminal of a recording, in characters, and how it is drawn: pixels and seconds.
const (
	castColumns = 110
	castRows    = 22
	castChar    = 7.25 // of a font of 12 pixels
	castLine    = 17
	pauseMost   = 2.0 // a longer pause is shown as this one
	pauseLast   = 6.0 // after the last line, before it begins again
)

// spoken is a line that a program printed, and when, in seconds after its start.
type spoken struct {
	at   float64
	text string
}

// record writes what a command prints on its standard output as an asciicast, version 2
// (docs.asciinema.org/manual/asciicast/v2).
func record(file string, command ...string) error {
	run := exec.Command(command[0], command[1:]...)
	out, err := run.StdoutPipe()
	if err != nil {
		return err
	}
	run.Stderr = os.Stderr
	began := time.Now()
	if err := run.Start(); err != nil {
		return err
	}
	text := fmt.Appendf(nil, "{\"version\": 2, \"width\": %d, \"height\": %d, \"title\": \"make demo\"}\n",
		castColumns, castRows)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		fmt.Println(lines.Text())
		event, err := json.Marshal([]any{time.Since(began).Seconds(), "o", lines.Text() + "\r\n"})
		if err != nil {
			return err
		}
		text = append(append(text, event...), '\n')
	}
	if err := run.Wait(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return os.WriteFile(file, text, 0o644)
}

// readCast reads what record wrote.
func readCast(file string) ([]spoken, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []spoken
	events := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	for _, event := range events[1:] {
		var s spoken
		var kind string
		if err := json.Unmarshal(event, &[]any{&s.at, &kind, &s.text}); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		s.text = strings.TrimRight(s.text, "\r\n")
		all = append(all, s)
	}
	return all, nil
}

// writeCast draws the recording of a file beside it.
func writeCast(file string) error {
	all, err := readCast(file)
	if err != nil {
		return err
	}
	return os.WriteFile(strings.TrimSuffix(file, ".cast")+".svg", drawCast(all), 0o644)
}

// wrapped breaks what is wider than the terminal, as it would.
func wrapped(all []spoken) (lines []spoken) {
	for _, s := range all {
		for chars := []rune(s.text); len(chars) > castColumns; chars = []rune(s.text) {
			lines = append(lines, spoken{s.at, string(chars[:castColumns])})
			s.text = string(chars[castColumns:])
		}
		lines = append(lines, s)
	}
	return lines
}

// shortened are the times at which lines are shown, with pauses of at most pauseMost.
func shortened(lines []spoken) []spoken {
	var before, skipped float64
	for i, s := range lines {
		skipped += max(0, s.at-before-pauseMost)
		before = s.at
		lines[i].at = s.at - skipped
	}
	return lines
}

const castStyle = `<style>
text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre;fill:#1f2328}
.step{font-weight:bold;fill:#0550ae}.call{fill:#116329}.screen{fill:#f6f8fa;stroke:#d1d9e0}
@media(prefers-color-scheme:dark){text{fill:#d1d7e0}.step{fill:#79c0ff}.call{fill:#7ee787}
.screen{fill:#0d1117;stroke:#3d444d}}
#said{transform:translateY(%dpx);animation:said %.1fs step-end infinite}
@media(prefers-reduced-motion:reduce){#said{animation:none}}
@keyframes said{%s}
</style>
`

// drawCast draws a recording: lines come at the bottom of a screen, and move up. Where nothing may
// move, the last ones stand still.
func drawCast(all []spoken) []byte {
	lines := shortened(wrapped(all))
	length := lines[len(lines)-1].at + pauseLast
	var frames, text strings.Builder
	for i, s := range lines {
		fmt.Fprintf(&text, "<text x=\"10\" y=\"%d\"%s>%s</text>\n", (i+1)*castLine, styleOf(s.text), html.EscapeString(s.text))
		if i+1 == len(lines) || lines[i+1].at > s.at+0.05 { // what comes at once is one frame
			from := 100 * s.at / length
			if frames.Len() == 0 {
				from = 0
			}
			fmt.Fprintf(&frames, "%.2f%%{transform:translateY(%dpx)}", from, (castRows-i-1)*castLine)
		}
	}
	wide, high := castColumns*castChar+20, castRows*castLine+14
	style := fmt.Sprintf(castStyle, (castRows-len(lines))*castLine, length, frames.String())
	return fmt.Appendf(nil, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %d\" width=\"%.0f\">\n"+
		"<title>make demo</title>\n%s"+
		"<rect class=\"screen\" x=\"0.5\" y=\"0.5\" width=\"%.0f\" height=\"%d\" rx=\"6\"/>\n"+
		"<svg width=\"%.0f\" height=\"%d\"><g id=\"said\">\n%s</g></svg>\n</svg>\n",
		wide, high, wide, style, wide-1, high-1, wide, castRows*castLine+7, text.String())
}

func styleOf(line string) string {
	switch trimmed := strings.TrimSpace(line); {
	case strings.HasPrefix(line, "["):
		return ` class="step"`
	case strings.HasPrefix(trimmed, "$ "):
		return ` class="call"`
	}
	return ""
}
