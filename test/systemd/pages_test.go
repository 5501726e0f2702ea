package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pages"
)

// What differs from one machine to another is no difference, and another word is one.
func TestComparable(t *testing.T) {
	sample := "hostpath-provisioner v0.2.0, pid 10347, ready as of 0s ago\n\nPOOL  FREE\n" +
		"fast  427 MiB of 487 MiB\npvc-868797d1-8b46-48eb-8be3-96ec25281b88  default/data\n"
	said := "hostpath-provisioner v0.2.0-dev.9+gabc, pid 7, ready as of 12s ago\n\nPOOL    FREE \n" +
		"fast    1.5 GiB of 2 GiB\npvc-00000000-8b46-48eb-8be3-96ec25281b88   default/data\n\n"
	if comparable(said) != comparable(sample) {
		t.Errorf("%q and %q differ", comparable(said), comparable(sample))
	}
	if other := strings.Replace(said, "ready", "not ready", 1); comparable(other) == comparable(sample) {
		t.Error("another word is no difference")
	}
}

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
