package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// Each diagram is drawn from the text that is kept beside it, has colours for dark pages, and is
// shown by a page, with words for those who do not see it.
func TestDiagrams(t *testing.T) {
	texts, err := filepath.Glob("../../docs/pictures/*.d2")
	pages, pagesErr := filepath.Glob("../../docs/*.md")
	if err != nil || pagesErr != nil || len(texts) < 7 {
		t.Fatalf("%q, %v, %v", texts, err, pagesErr)
	}
	shown := ""
	for _, page := range append(pages, "../../README.md") {
		data := hosttest.Need(os.ReadFile(page))(t)
		shown += string(data)
	}
	for _, text := range texts {
		svg := hosttest.Need(os.ReadFile(svgOf(text)))(t)
		note, err := noteOf(text)
		if err != nil || !bytes.HasSuffix(svg, []byte(note)) {
			t.Errorf("%s is not drawn from its text (%v); run: make pictures", svgOf(text), err)
		}
		if !bytes.Contains(svg, []byte("prefers-color-scheme:dark")) {
			t.Errorf("%s has no dark colours", svgOf(text))
		}
		wellFormed(t, svg)
		name := regexp.QuoteMeta("pictures/" + filepath.Base(svgOf(text)))
		if !regexp.MustCompile(`!\[[^\]]{20,}\]\((?:docs/)?` + name + `\)`).MatchString(shown) {
			t.Errorf("no page shows %s with words for it", name)
		}
	}
}
