package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every package of the module is in the map, and no other.
func TestPackagesOfTheMap(t *testing.T) {
	list := exec.Command("go", "list", "./...")
	list.Dir = ".."
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	var real []string
	for _, path := range strings.Fields(string(out)) {
		_, name, _ := strings.Cut(path, "/hostpath-provisioner/hostpath-provisioner/")
		real = append(real, name)
	}
	same(t, "packages", allOfFirstCells(t, "dev/development.md", "Packages"), real)
}

// allOfFirstCells are the names in the first column of the tables under a heading, also where a
// cell has several.
func allOfFirstCells(t *testing.T, file, heading string) (all []string) {
	t.Helper()
	_, section, ok := strings.Cut(read(t, file), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no heading %q", file, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|").FindAllStringSubmatch(section, -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			all = append(all, name[1])
		}
	}
	return all
}

// The glossary is short, and each of its words names something in the product's code.
func TestGlossary(t *testing.T) {
	words := allOfFirstCells(t, "dev/development.md", "Glossary")
	if len(words) == 0 || len(words) > 20 {
		t.Errorf("the glossary has %d words, want 1 to 20", len(words))
	}
	code := declarations(t)
	for _, word := range words {
		if !strings.Contains(code, "\n"+word) && !strings.Contains(code, word+"\n") {
			t.Errorf("no declaration has the word %q", word)
		}
	}
}

// declarations are the names of packages, types, functions and fields of the product, one a line, in lower case.
func declarations(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, root := range []string{"../daemon", "../hostcheck"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			b.WriteString("\n" + file.Name.Name)
			ast.Inspect(file, func(n ast.Node) bool {
				var names []*ast.Ident
				switch n := n.(type) {
				case *ast.TypeSpec:
					names = []*ast.Ident{n.Name}
				case *ast.FuncDecl:
					names = []*ast.Ident{n.Name}
				case *ast.Field:
					names = n.Names
				}
				for _, name := range names {
					b.WriteString("\n" + name.Name)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return strings.ToLower(b.String()) + "\n"
}
