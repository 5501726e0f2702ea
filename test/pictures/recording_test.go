package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// The picture is XML, and of the recording, which is of a demonstration that held. That it is of
// today's is tested in test/demo.
func TestPictureOfTheRecording(t *testing.T) {
	file := filepath.Join(rig.Root(), "docs", "pictures", castName)
	all, err := readCast(file)
	if err != nil {
		t.Fatal(err)
	}
	if last := all[len(all)-1].text; !strings.HasPrefix(last, "every step held") {
		t.Errorf("it ends with %q", last)
	}
	kept, err := os.ReadFile(strings.TrimSuffix(file, ".cast") + ".svg")
	if err != nil || string(kept) != string(drawCast(all)) {
		t.Errorf("the picture is of another recording: make recording (%v)", err)
	}
	wellFormed(t, kept)
}
