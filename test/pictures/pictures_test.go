package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

const measured = "../../docs/measured"

// A page shows each picture, and each is drawn from the measurements that are kept beside it.
func TestPicturesAreShown(t *testing.T) {
	page := hosttest.Need(os.ReadFile("../../docs/dev/performance.md"))(t)
	for _, p := range pictures {
		if !strings.Contains(string(page), "](../measured/"+p.file+")") {
			t.Errorf("performance.md does not show %s", p.file)
		}
		want := hosttest.Need(p.draw(measured))(t)
		if got, err := os.ReadFile(filepath.Join(measured, p.file)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what %s says (%v); run: make pictures", p.file, p.json, err)
		}
	}
}

// A picture has each of its numbers and is XML.
func TestDraw(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"cluster.json": `{"machine": "2 < 3 processors", "rows": [{"contender": "floor", "podsPerSecond": 598, "floor": true}, {"contender": "library", "podsPerSecond": 3.83}, {"contender": "hostpath-provisioner", "podsPerSecond": 6.19}]}`,
		"scale.json":   `{"machine": "m", "rows": [{"foreign": 0, "contender": "a & b", "residentMiB": 30}, {"foreign": 7, "contender": "a & b", "residentMiB": 1234}]}`,
	} {
		hosttest.Check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	hosttest.Check(t, run(dir))
	for name, words := range map[string][]string{
		"pods.svg":   {">library<", ">3.83<", ">6.19<", oursColour, "2 &lt; 3 processors"},
		"memory.svg": {">7 claims<", ">30<", ">1234<", "a &amp; b"},
	} {
		data := hosttest.Need(os.ReadFile(filepath.Join(dir, name)))(t)
		for _, word := range words {
			if !bytes.Contains(data, []byte(word)) {
				t.Errorf("%s has no %q:\n%s", name, word, data)
			}
		}
		if bytes.Contains(data, []byte(">598<")) {
			t.Errorf("%s has the floor", name)
		}
		wellFormed(t, data)
	}
}

func wellFormed(t *testing.T, data []byte) {
	t.Helper()
	for decoder := xml.NewDecoder(bytes.NewReader(data)); ; {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestNothingMeasured(t *testing.T) {
	if err := run(t.TempDir()); err == nil {
		t.Error("no error without measurements")
	}
}
