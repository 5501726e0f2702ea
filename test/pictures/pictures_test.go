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
)

const measured = "../../docs/measured"

// A page shows each picture, and each is XML and drawn from the measurements that are kept beside
// it.
func TestPicturesAreShown(t *testing.T) {
	page, err := os.ReadFile("../../docs/dev/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pictures {
		if !strings.Contains(string(page), "](../measured/"+p.file+")") {
			t.Errorf("performance.md does not show %s", p.file)
		}
		want, err := p.draw(measured)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(measured, p.file)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what %s says (%v); run: make pictures", p.file, p.json, err)
		}
		wellFormed(t, want)
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
