package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Each rule stands on a line of its list, with the sentences that an operator reads, so that the list alone is the
// specification.
func TestListsShowSentences(t *testing.T) {
	sentences := map[string][]string{}
	files, set := map[string]*ast.File{}, token.NewFileSet()
	for _, name := range []string{"adopt.go", "replace.go"} {
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = file
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Recv == nil {
				sentences[f.Name.Name] = refusals(f)
			}
		}
	}
	for list, file := range map[string]string{"adoptRules": "adopt.go", "replacementRules": "replace.go"} {
		shown := shownIn(set, files[file], list)
		if want := map[string]int{"adoptRules": len(adoptRules), "replacementRules": len(replacementRules)}[list]; len(shown) != want {
			t.Errorf("%s: %d rules on lines of their own, of %d", list, len(shown), want)
		}
		for name, comment := range shown {
			want := strings.Join(sentences[name], " | ")
			if want == "" {
				want = "ignored"
			}
			if comment != want {
				t.Errorf("%s: %s // %s\nwant // %s", list, name, comment, want)
			}
		}
	}
}

// refusals are the sentences that a function gives to refuse, which each stand there once.
func refusals(f *ast.FuncDecl) (all []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is || len(call.Args) < 3 {
			return true
		}
		if name, is := call.Fun.(*ast.Ident); is && name.Name == "refuse" {
			if text, is := call.Args[2].(*ast.BasicLit); is {
				sentence, _ := strconv.Unquote(text.Value)
				all = append(all, sentence)
			}
		}
		return true
	})
	return all
}

// shownIn is the comment behind each rule of a list, by the rule's name.
func shownIn(set *token.FileSet, file *ast.File, list string) map[string]string {
	line := func(n ast.Node) int { return set.Position(n.Pos()).Line }
	shown := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		v, is := n.(*ast.ValueSpec)
		if !is || v.Names[0].Name != list {
			return true
		}
		for _, element := range v.Values[0].(*ast.CompositeLit).Elts {
			at := slices.IndexFunc(file.Comments, func(c *ast.CommentGroup) bool { return line(c) == line(element) })
			if at >= 0 {
				shown[element.(*ast.Ident).Name] = strings.TrimSpace(file.Comments[at].Text())
			}
		}
		return true
	})
	return shown
}
