package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/pages"
)

// holders are the tests that compare a sample with what the program says.
var holders = []string{
	"test/systemd/*.go", "test/identity/check_test.go", "test/e2e/*.go", "cmd/hostpath-provisioner/samples_test.go",
}

// Every sample that a user's page shows is compared by a test: Sample, or a caller of it, is called
// with the page and the heading.
func TestSamplesAreHeld(t *testing.T) {
	held := ""
	for _, pattern := range holders {
		files, err := filepath.Glob(filepath.Join("..", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			held += string(text)
		}
	}
	samples := 0
	for _, d := range documents(t) {
		name := strings.TrimPrefix(d.name, "docs/")
		if strings.HasPrefix(name, "dev/") {
			continue
		}
		blocks, err := pages.Open("..").Blocks(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			if b.Language != "text" {
				continue
			}
			samples++
			if !strings.Contains(held, `"`+b.Page+`", "`+b.Heading+`"`) || b.Number > 0 {
				t.Errorf("no test holds the sample in %s", b)
			}
		}
	}
	if samples < 8 {
		t.Errorf("only %d samples", samples)
	}
}
