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

func TestTable(t *testing.T) {
	var out, complaints bytes.Buffer
	code := report(tree(map[string]string{
		"daemon/a.go":           lines(5) + "\nfunc (r room) enter() { r.door() }\n\nvar g = func() {\n\n\n}\n",
		"daemon/a_test.go":      lines(400),
		"daemon/plan/b.go":      lines(29),
		"daemon/plan/b_test.go": lines(29),
		"daemon/testdata/c.go":  "no Go",
		".build/d.go":           "no Go",
		"docs/e_test.go":        lines(10),
		"docs/page.md":          "no Go",
	}), &out, &complaints)
	const want = `  functions  median  95 %  longest  code  tests  tests/code  files over 450  package
          2       1     5        5    14    402       28.71               0  daemon
          1      29    29       29    31     31        1.00               0  daemon/plan
          0       0     0        0     0     12           -               0  docs
          3       5    29       29    45    445        9.89               0  all
`
	if out.String() != want || complaints.Len() > 0 || code != 0 {
		t.Errorf("exit %d\n%s\n%s\nwant\n%s", code, out.String(), complaints.String(), want)
	}
}

func TestLimits(t *testing.T) {
	short := func(n int) string { return "package p\n" + strings.Repeat("\nfunc f() {}\n", n) }
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"the longest function allowed, among short ones": {map[string]string{"cmd/a.go": lines(60), "cmd/b.go": short(19), "cmd/a_test.go": lines(90)}, ""},
		"a function too long":                            {map[string]string{"test/vm/a.go": lines(61), "test/vm/b.go": short(19)}, "test/vm/a.go:3:1 f has 61 lines, want 60 at the most"},
		"a test too long is none":                        {map[string]string{"cmd/a_test.go": lines(99)}, ""},
		"too few short functions": {map[string]string{"cmd/a.go": lines(30), "hostcheck/b.go": short(18), "cmd/a_test.go": lines(60), "hostcheck/b_test.go": lines(60)},
			"the product: 18 of 19 functions have less than 30 lines, want 95 %"},
		"those of tests are counted by themselves": {map[string]string{"test/a.go": lines(30), "hostcheck/b.go": short(99), "hostcheck/b_test.go": lines(200)},
			"its tests' programs: 0 of 1 functions have less than 30 lines, want 95 %"},
		"a test file too long":       {map[string]string{"docs/a_test.go": lines(449)}, "docs/a_test.go has 451 lines, want 450 at the most"},
		"a file as long as allowed":  {map[string]string{"docs/a_test.go": lines(448)}, ""},
		"too few lines of tests":     {map[string]string{"testing/a.go": lines(18), "testing/a_test.go": lines(13)}, "testing has 0.75 lines of tests for a line of code, want 0.8"},
		"enough lines of tests":      {map[string]string{"testing/a.go": lines(18), "testing/a_test.go": lines(14)}, ""},
		"tests need no tests":        {map[string]string{"test/hang/a.go": lines(18)}, ""},
		"a package without any test": {map[string]string{"selinux/a.go": lines(2)}, "selinux has 0.00 lines of tests for a line of code, want 0.8"},
		"a file that is no Go":       {map[string]string{"cmd/a.go": "pakage p\n"}, "cmd/a.go:1:1: expected 'package', found pakage"},
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

func TestPercentile(t *testing.T) {
	var hundred []int
	for n := range 100 {
		hundred = append(hundred, n+1)
	}
	for _, test := range []struct {
		sorted        []int
		percent, want int
	}{{nil, 95, 0}, {[]int{7}, 50, 7}, {[]int{1, 9}, 50, 1}, {[]int{1, 9}, 51, 9}, {hundred, 50, 50}, {hundred, 95, 95}, {hundred, 100, 100}} {
		t.Run(fmt.Sprintf("%d of %d", test.percent, len(test.sorted)), func(t *testing.T) {
			if got := percentile(test.sorted, test.percent); got != test.want {
				t.Errorf("%d, want %d", got, test.want)
			}
		})
	}
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
