package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A licence below the top is one of code that is linked as well; what only tests or tools have is
// not, and a file whose name merely begins like one is no licence.
func TestTextsOf(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"LICENSE", "LICENCE.txt", "NOTICE.md", "COPYING", "PATENTS", "LICENSE-MIT", "license.apache", "internal/fork/LICENSE",
		"testdata/LICENSE", "vendor/example.com/x/LICENSE", "license.go", "LICENSES", "NOTICES.html", "UNLICENSE", "copyright_test.go",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	top := []string{"COPYING", "LICENCE.txt", "LICENSE", "LICENSE-MIT", "NOTICE.md", "PATENTS", "license.apache"}
	for path, want := range map[string][]string{"Go": top, "example.com/module": append(slices.Clone(top), "internal/fork/LICENSE")} {
		got, err := textsOf(module{Path: path, Dir: dir})
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v\ngot  %q\nwant %q", path, err, got, want)
		}
	}
}

func TestLicensesUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"a", "b"}} {
		var out, errs bytes.Buffer
		if code := run(args, &out, &errs); code != 2 || out.Len() > 0 || errs.String() != "usage: licenses PROGRAM\n" {
			t.Errorf("%q: exit code %d, %q, %q", args, code, out.String(), errs.String())
		}
	}
}
