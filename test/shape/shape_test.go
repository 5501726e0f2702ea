package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

// lines is Go with one function of so many lines.
func lines(n int) string {
	return "package p\n\nfunc f() {\n" + strings.Repeat("\n", n-2) + "}\n"
}

func tree(files map[string]string) fstest.MapFS {
	fs := fstest.MapFS{}
	for name, text := range files {
		fs[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fs
}

func TestLimits(t *testing.T) {
	wide := "\t// " + strings.Repeat("x", 94) + "\n"
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"the longest function allowed":  {map[string]string{"cmd/a.go": lines(60)}, ""},
		"a function too long":           {map[string]string{"test/vm/a.go": lines(61)}, "test/vm/a.go:3:1 f has 61 lines, want 60 at the most"},
		"a test too long is none":       {map[string]string{"cmd/a_test.go": lines(99)}, ""},
		"a test file too long":          {map[string]string{"docs/a_test.go": lines(449)}, "docs/a_test.go has 451 lines, want 450 at the most"},
		"a file as long as allowed":     {map[string]string{"docs/a_test.go": lines(448)}, ""},
		"as many wide lines as allowed": {wideFiles(wide, wideAllowed), ""},
		"one wide line more": {wideFiles(wide, wideAllowed+1),
			fmt.Sprintf("%d lines have more than 100 columns, %d may", wideAllowed+1, wideAllowed)},
		"lines of 100 columns": {wideFiles(wide[:len(wide)-2]+"\n", wideAllowed+1), ""},
		"a file that is no Go": {map[string]string{"cmd/a.go": "pakage p\n"}, "cmd/a.go:1:1: expected 'package', found pakage"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, complaints bytes.Buffer
			code, want := report(tree(test.files), &out, &complaints), 0
			if test.want != "" {
				want, test.want = 1, "shape: "+test.want+"\n"
			}
			if complaints.String() != test.want || code != want {
				t.Errorf("exit %d, %q, want %d, %q", code, complaints.String(), want, test.want)
			}
		})
	}
}

// wideFiles has this line so many times, in files of 400 lines.
func wideFiles(line string, n int) map[string]string {
	files := map[string]string{}
	for i := 0; n > 0; i++ {
		files[fmt.Sprintf("docs/%d.go", i)] = "package p\n" + strings.Repeat(line, min(n, 400))
		n -= min(n, 400)
	}
	return files
}

func TestUsage(t *testing.T) {
	var out, complaints bytes.Buffer
	if code := run(nil, &out, &complaints); code != 2 || complaints.String() != "usage: shape DIRECTORY\n" {
		t.Errorf("exit %d, %q", code, complaints.String())
	}
	complaints.Reset()
	if code := run([]string{"/no/such"}, &out, &complaints); code != 1 || complaints.Len() == 0 {
		t.Errorf("a directory that is not there: exit %d, %q", code, complaints.String())
	}
}
