package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// The picture is of the recording, which is of a demonstration that held. That it is of today's is
// tested in test/demo.
func TestPictureOfTheRecording(t *testing.T) {
	file := filepath.Join(rig.Root(), "docs", "pictures", castName)
	all := hosttest.Need(readCast(file))(t)
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
