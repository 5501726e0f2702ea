package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pages"
)

// The last step fails for a command that was not run, and for an exception that nothing needs.
func TestAllRun(t *testing.T) {
	root := t.TempDir()
	page := "## One\n\n```sh\nfirst\n```\n\n## Two\n\n```sh\nsecond\n```\n"
	if err := os.Mkdir(filepath.Join(root, "docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "docs", "page.md"), []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		taken     string
		elsewhere map[string]string
		want      string
	}{
		{"One", map[string]string{"page.md, Two": "another reader"}, ""},
		{"One", nil, "second"},
		{"One", map[string]string{"page.md, Two": "another reader", "page.md, Three": "another reader"}, "page.md, Three"},
	} {
		e := &environment{Program: &harness.Program{}, pages: pages.Open(root)}
		if _, err := e.pages.Take("page.md", c.taken, "sh"); err != nil {
			t.Fatal(err)
		}
		if got := harness.Fatally(func() { e.allRun([]string{"page.md"}, c.elsewhere) }); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%v: %q, want %q", c.elsewhere, got, c.want)
		}
	}
}
