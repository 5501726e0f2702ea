package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A row says of each feature what showed it, or why nothing did; the last result of a test counts.
// It replaces that of an earlier release of the version; others stay, and all are sorted.
func TestTable(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const pkg = "\tgithub.com/hostpath-provisioner/hostpath-provisioner/test/e2e\t"
	write("versions/1.33/release", "v1.33.13\n")
	write("versions/1.33/results", "pass\t\tdemo\t\nfail"+pkg+"TestClone\t\npass"+pkg+"TestClone\t\n"+
		"skip"+pkg+"TestClaimIndex\tMutatingAdmissionPolicy is of Kubernetes 1.36\n"+
		"fail"+pkg+"TestInlineVolume\t\n")
	page := write("page.md", "before\n"+begin+"\n| 1.34.4 | old |\n| 1.33.12 | older |\n"+end+"\nafter\n")
	if err := update(page, filepath.Join(dir, "versions")); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(got)), "\n")
	row, order := "", ""
	for _, line := range lines[1 : len(lines)-1] {
		if strings.HasPrefix(line, "| 1.33.13 ") {
			row = line
		}
		order += strings.Fields(line + " .")[1] + " "
	}
	if want := "test/versions: version . 1.33.13 1.34.4 test/versions: "; order != want {
		t.Errorf("the lines begin with %q", order)
	}
	for name, want := range map[string]string{
		"demonstration": "`make demo`", "clones": "`TestClone` (test/e2e)", "inline volumes": "**failed**: `TestInlineVolume` (test/e2e)",
		"claim index": "lacks it: MutatingAdmissionPolicy is of Kubernetes 1.36", "expansion": "not run",
		"test/e2e": "1 passed, 1 lack, **1 failed**", "test/identity": "not run",
	} {
		if cell := cells(row)[index(cells(lines[2]), name)]; cell != want {
			t.Errorf("%s: %q, want %q", name, cell, want)
		}
	}
}

func cells(line string) []string { return strings.Split(strings.Trim(line, "| "), " | ") }

func index(all []string, one string) int {
	for i, name := range all {
		if name == one {
			return i
		}
	}
	return -1
}

// Every name in the list is a test: one that was renamed would run nothing, and the table would
// have "not run" for ever.
func TestNamesExist(t *testing.T) {
	tests := ""
	for _, pkg := range packages {
		files, err := filepath.Glob(filepath.Join("..", "..", pkg, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pkg, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tests += pkg + "\n" + string(text)
		}
	}
	for _, name := range names() {
		if !strings.Contains(tests, "\nfunc "+name+"(t *testing.T)") {
			t.Errorf("there is no test %s", name)
		}
	}
}
