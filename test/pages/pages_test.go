package pages

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const page = "# A page\n\n```sh\nfirst\n```\n\n## One\n\n```sh\n## two\nsecond\n```\n\n```yaml\nkind: Pod\n```\n\n```sh\nthird\n```\n\n## Two\n\n```text\nfast   427 MiB\nhint: call ...\n```\n"

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

// What differs from one machine to another is no difference, and another word is one.
func TestComparable(t *testing.T) {
	sample := "hostpath-provisioner v0.2.0, pid 10347, ready as of 0s ago\n\nPOOL  FREE\n" +
		"fast  427 MiB of 487 MiB\npvc-868797d1-8b46-48eb-8be3-96ec25281b88  default/data\n"
	said := "hostpath-provisioner v0.2.0-dev.9+gabc, pid 7, ready as of 12s ago\n\nPOOL    FREE \n" +
		"fast    1.5 GiB of 2 GiB\npvc-00000000-8b46-48eb-8be3-96ec25281b88   default/data\n\n"
	if Comparable(said) != Comparable(sample) {
		t.Errorf("%q and %q differ", Comparable(said), Comparable(sample))
	}
	if other := strings.Replace(said, "ready", "not ready", 1); Comparable(other) == Comparable(sample) {
		t.Error("another word is no difference")
	}
}

// A sample is compared with the end of what was said; a line may be cut off by an ellipsis alone.
func TestSample(t *testing.T) {
	p := open(t)
	for said, want := range map[string]bool{
		"first\nfast 7 GiB\nhint: call it again": true, "fast 7 GiB\nhint: call us": true,
		"fast 7 GiB\nhint: do": false, "slow 7 GiB\nhint: call it": false, "hint: call it": false, "": false,
	} {
		if err := p.Sample(said, "page.md", "Two", 0); (err == nil) != want {
			t.Errorf("%q: %v", said, err)
		}
	}
	if p.Sample("", "page.md", "One", 0) == nil {
		t.Error("a sample that is not there")
	}
}
