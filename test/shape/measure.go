package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// function is a declared function or method, with the lines from its first to its last.
type function struct {
	name  string // FILE:LINE NAME
	lines int
}

// source is one file. Lines are those that an editor counts, blank ones and comments included.
type source struct {
	name      string
	lines     int
	wide      int // lines with more columns than they should have
	functions []function
}

// goPackage is what one directory has: the code, and the tests of the same package or of its _test
// package.
type goPackage struct {
	dir         string
	code, tests []source
}

// measure parses all Go files below the root, without those in testdata and in directories that
// begin with a dot.
func measure(root fs.FS) ([]goPackage, error) {
	byDir := map[string]*goPackage{}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".")):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		s, err := read(root, name)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		if byDir[dir] == nil {
			byDir[dir] = &goPackage{dir: dir}
		}
		byDir[dir].add(s)
		return nil
	})
	return sorted(byDir), err
}

func (p *goPackage) add(s source) {
	if strings.HasSuffix(s.name, "_test.go") {
		p.tests = append(p.tests, s)
	} else {
		p.code = append(p.code, s)
	}
}

func sorted(byDir map[string]*goPackage) []goPackage {
	var all []goPackage
	for _, p := range byDir {
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b goPackage) int { return strings.Compare(a.dir, b.dir) })
	return all
}

func read(root fs.FS, name string) (source, error) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return source{}, err
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	if err != nil {
		return source{}, err
	}
	s := source{name: name, lines: strings.Count(string(text), "\n"), wide: wideLines(string(text))}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			first, last := files.Position(f.Pos()), files.Position(f.End())
			s.functions = append(s.functions, function{first.String() + " " + f.Name.Name, last.Line - first.Line + 1})
		}
	}
	return s, nil
}

func wideLines(text string) (wide int) {
	for line := range strings.Lines(text) {
		line = strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "    ")
		if utf8.RuneCountInString(line) > columns {
			wide++
		}
	}
	return wide
}
