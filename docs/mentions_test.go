package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testName   = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w*`)
	declared   = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w*)\(`)
	sourceFile = regexp.MustCompile(`(?:^|[^\w/.-])((?:cmd|daemon|hostcheck|packaging|systemd|selinux|test|docs)` +
		`/[\w./-]+\.(?:go|md|sh|yaml|txt|toml))\b`)
)

// Every test and every file of the tree that a comment, a page or a breakage names exists. The
// changelog may name what was there once.
func TestMentions(t *testing.T) {
	texts := sources(t)
	exists := map[string]bool{}
	for _, text := range texts {
		for _, name := range declared.FindAllStringSubmatch(text, -1) {
			exists[name[1]] = true
		}
	}
	mentioned := 0
	for file, text := range texts {
		for line := range strings.Lines(text) {
			if filepath.Ext(file) == ".go" {
				_, line, _ = strings.Cut(line, "//")
			}
			for _, name := range testName.FindAllString(line, -1) {
				if mentioned++; !exists[name] && !prefixes(file, name, exists) {
					t.Errorf("%s names the test %s, which does not exist", file, name)
				}
			}
			for _, name := range sourceFile.FindAllStringSubmatch(line, -1) {
				if _, err := os.Stat(filepath.Join("..", name[1])); err != nil {
					t.Errorf("%s names a file: %v", file, err)
				}
			}
		}
	}
	if mentioned < 1000 {
		t.Errorf("only %d names of tests were found", mentioned)
	}
}

// prefixes reports whether a breakage's proof is all tests whose names begin with this.
func prefixes(file, name string, exists map[string]bool) bool {
	if filepath.Ext(file) != ".txt" {
		return false
	}
	for test := range exists {
		if strings.HasPrefix(test, name) {
			return true
		}
	}
	return false
}

// sources are the texts of all files that people write about the code in, by their names below the
// root.
func sources(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := filepath.WalkDir("..", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." {
			return fs.SkipDir
		}
		if err != nil || entry.IsDir() || entry.Name() == "CHANGELOG.md" {
			return err
		}
		switch filepath.Ext(name) {
		case ".go", ".md", ".sh", ".txt", ".mk":
			texts[name] = read(t, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}
