package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// The recording has the steps that the demonstration has today, in its order, and its picture is of
// this recording.
func TestRecordingIsOfToday(t *testing.T) {
	file := filepath.Join(rig.Root(), "docs", "pictures", castName)
	all, err := readCast(file)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(rig.Root(), "test", "demo", "steps.go"))
	if err != nil {
		t.Fatal(err)
	}
	var steps, want []string
	for _, s := range all {
		if m := regexp.MustCompile(`^\[ *[0-9.]+s\] (.*)$`).FindStringSubmatch(s.text); m != nil {
			steps = append(steps, m[1])
		}
	}
	for _, m := range regexp.MustCompile(`e\.step\("([^"]+)"`).FindAllStringSubmatch(string(source), -1) {
		if !strings.Contains(m[1], "KUBECONFIG") { // of another cluster
			want = append(want, m[1])
		}
	}
	if len(want) < 5 || strings.Join(steps, "\n") != strings.Join(want, "\n") {
		t.Errorf("recorded steps (make recording):\n%s\nthe demonstration's:\n%s",
			strings.Join(steps, "\n"), strings.Join(want, "\n"))
	}
	if last := all[len(all)-1].text; !strings.HasPrefix(last, "every step held") {
		t.Errorf("it ends with %q", last)
	}
	kept, err := os.ReadFile(strings.TrimSuffix(file, ".cast") + ".svg")
	if err != nil || string(kept) != string(drawCast(all)) {
		t.Errorf("the picture is of another recording: make recording (%v)", err)
	}
}

// What a program printed stays text in a picture, is as wide as the screen, and shows no pause
// that is longer than pauseMost.
func TestDrawCast(t *testing.T) {
	long := strings.Repeat("w", castColumns+1)
	svg := string(drawCast([]spoken{{1, "[  1.0s] <b> & \"x\""}, {90, "    $ " + long}, {90, "end"}}))
	if err := xml.Unmarshal([]byte(svg), new(struct{})); err != nil {
		t.Errorf("%v\n%s", err, svg)
	}
	for _, want := range []string{
		`class="step">[  1.0s] &lt;b&gt; &amp; `, `class="call">    $ www`, ">wwwwwww</text>",
		"animation:said 9.0s step-end", "0.00%{transform:translateY(357px)}33.33%{transform:translateY(306px)}",
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s in\n%s", want, svg)
		}
	}
}
