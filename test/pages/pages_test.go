package pages

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

const page = "# A page\n\n```sh\nfirst\n```\n\n## One\n\n```sh\n## two\nsecond\n```\n\n```yaml\nkind: Pod\n```\n\n```sh\nthird\n```\n\n## Two\n\nNothing.\n"

func open(t *testing.T) *Pages {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "docs", "page.md"), []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	return Open(root)
}

// What was not taken is left, and nothing else is: not what is no command.
func TestLeft(t *testing.T) {
	p := open(t)
	left := func() (texts []string) {
		blocks, err := p.Left("page.md")
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			texts = append(texts, b.Text)
		}
		return texts
	}
	for _, step := range []struct {
		heading string
		numbers []int
		left    []string
	}{
		{"One", []int{1}, []string{"first\n", "## two\nsecond\n"}},
		{"", nil, []string{"## two\nsecond\n"}},
		{"One", nil, nil},
	} {
		if _, err := p.Take("page.md", step.heading, "sh", step.numbers...); err != nil {
			t.Fatal(err)
		}
		if got := left(); !reflect.DeepEqual(got, step.left) {
			t.Errorf("after %q %v: %q, want %q", step.heading, step.numbers, got, step.left)
		}
	}
}

// A caller that names what is not there does not run nothing and go on.
func TestTakeNothing(t *testing.T) {
	p := open(t)
	for _, c := range []struct {
		page, heading, language string
		numbers                 []int
	}{
		{"page.md", "Two", "sh", nil}, {"page.md", "Three", "sh", nil}, {"page.md", "One", "sh", []int{2}},
		{"page.md", "One", "sh", []int{0, 2}}, {"page.md", "One", "toml", nil}, {"none.md", "One", "sh", nil},
	} {
		if got, err := p.Take(c.page, c.heading, c.language, c.numbers...); err == nil {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
