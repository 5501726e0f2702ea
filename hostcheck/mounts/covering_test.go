package mounts

import (
	"fmt"
	"strings"
	"testing"
)

var escapes = strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`)

// line writes a mount as the kernel does.
func line(m Mount) string {
	optional := ""
	if m.Optional != "" {
		optional = " " + m.Optional
	}
	return fmt.Sprintf("%d %d %d:%d %s %s %s%s - %s %s %s\n", m.ID, m.Parent, m.Major, m.Minor, escapes.Replace(m.Root),
		escapes.Replace(m.Point), escapes.Replace(m.Options), optional, escapes.Replace(m.FSType), escapes.Replace(m.Source), escapes.Replace(m.SuperOptions))
}

// at is a mount of which only its place matters.
func at(id, parent int, point string) Mount { return Mount{ID: id, Parent: parent, Point: point} }

func TestCovering(t *testing.T) {
	root := at(1, 0, "/")
	for _, c := range []struct {
		name  string
		table []Mount
		path  string
		want  int // 0: none
	}{
		{"root", []Mount{root}, "/", 1},
		{"below root", []Mount{root}, "/a/b", 1},
		{"at a mount", []Mount{root, at(2, 1, "/a")}, "/a", 2},
		{"below a mount", []Mount{root, at(2, 1, "/a")}, "/a/b", 2},
		{"a name that begins alike", []Mount{root, at(2, 1, "/a")}, "/ab", 1},
		{"the longest", []Mount{root, at(2, 1, "/a"), at(3, 2, "/a/b")}, "/a/b/c", 3},
		{"the longest, listed first", []Mount{at(3, 2, "/a/b"), at(2, 1, "/a"), root}, "/a/b/c", 3},
		{"the upper of two", []Mount{root, at(2, 1, "/a"), at(3, 2, "/a")}, "/a/b", 3},
		{"the upper of two, listed first", []Mount{root, at(3, 2, "/a"), at(2, 1, "/a")}, "/a/b", 3},
		{"two on the same directory: the last one", []Mount{root, at(2, 1, "/a"), at(3, 1, "/a")}, "/a/b", 3},
		{"hidden by a mount above it", []Mount{root, at(2, 1, "/a/b"), at(3, 1, "/a")}, "/a/b/c", 3},
		{"on the upper of two", []Mount{root, at(2, 1, "/a"), at(3, 2, "/a"), at(4, 3, "/a/b")}, "/a/b", 4},
		{"hidden on the lower of two", []Mount{root, at(2, 1, "/a"), at(4, 2, "/a/b"), at(3, 2, "/a")}, "/a/b", 3},
		{"root mounted over", []Mount{root, at(2, 1, "/")}, "/a", 2},
		{"root is its own parent", []Mount{at(1, 1, "/"), at(2, 1, "/a")}, "/a", 2},
		{"a table without root", []Mount{at(2, 77, "/a")}, "/a/b", 2},
		{"a table without root, elsewhere", []Mount{at(2, 77, "/a")}, "/b", 0},
		{"nothing", nil, "/a", 0},
		{"a ring", []Mount{at(1, 2, "/"), at(2, 1, "/")}, "/a", 0},
		{"a ring below root", []Mount{root, at(2, 3, "/a"), at(3, 2, "/a")}, "/a", 1},
		{"the same number twice", []Mount{root, at(1, 1, "/a"), at(1, 1, "/a/b")}, "/a/b", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := Covering(c.table, c.path)
			if got.ID != c.want || ok != (c.want != 0) {
				t.Fatalf("got %+v, %v; want %d", got, ok, c.want)
			}
		})
	}
}

func TestAt(t *testing.T) {
	table := []Mount{at(1, 0, "/"), at(2, 1, "/a"), at(3, 2, "/a"), at(4, 3, "/a"), at(5, 1, "/b"), at(6, 4, "/a/c")}
	for _, c := range []struct {
		point  string
		stack  string
		parent int
	}{
		{"/a", "2 3 4", 1}, {"/b", "5", 1}, {"/a/c", "6", 4}, {"/c", "", 0}, {"/a/x", "", 0}, {"/", "", 0},
	} {
		stack, parent, ok := At(table, c.point)
		var ids []string
		for _, m := range stack {
			ids = append(ids, fmt.Sprint(m.ID))
		}
		if got := strings.Join(ids, " "); got != c.stack || parent.ID != c.parent || ok != (c.stack != "") {
			t.Errorf("%s: got %q on %d, %v", c.point, got, parent.ID, ok)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	text := strings.Repeat(simple, 1000)
	for b.Loop() {
		if _, err := parse(text); err != nil {
			b.Fatal(err)
		}
	}
}
