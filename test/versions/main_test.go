package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// A row says of each feature what showed it, or why nothing did; the last result of a test counts.
// It replaces that of an earlier release of the version; others stay, and all are sorted.
func TestTable(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		hosttest.Check(t, os.MkdirAll(filepath.Dir(file), 0o755))
		hosttest.Check(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	const pkg = "\tgithub.com/hostpath-provisioner/hostpath-provisioner/test/e2e\t"
	write("versions/1.33/release", "v1.33.13\n")
	write("versions/1.33/results", "pass\t\tdemo\t\nfail"+pkg+"TestClone\t\npass"+pkg+"TestClone\t\n"+
		"skip"+pkg+"TestClaimIndex\tMutatingAdmissionPolicy is of Kubernetes 1.36\n"+
		"fail"+pkg+"TestInlineVolume\t\n"+
		"pass\ttest/nodes\tTestNodes 1.33\t\nfail\ttest/nodes\tTestCSI 1.32,1.33\t\n")
	write("versions/1.35/release", "v1.35.4\n")
	write("versions/1.35/results", "pass"+pkg+"TestClone\t\npass\t\tdemo\t\n")
	page := write("page.md", "before\n"+begin+"\n"+"| version | expansion | snapshots | test/e2e |\n|---|---|---|---|\n"+
		"| 1.34.4 | old | was | 2 passed |\n| 1.33.12 | older | was | 2 passed |\n"+
		"| 1.35.4 | kept | was | 2 passed |\n"+end+"\nafter\n")
	hosttest.Check(t, update(page, filepath.Join(dir, "versions")))
	got := hosttest.Need(os.ReadFile(page))(t)
	lines := strings.Split(strings.TrimSpace(string(got)), "\n")
	rows, order := map[string]map[string]string{}, ""
	for _, line := range lines[1 : len(lines)-1] {
		rows[split(line)[0]] = named(split(lines[2]), split(line))
		order += strings.Fields(line + " .")[1] + " "
	}
	if want := "test/versions: version . 1.33.13 1.34.4 1.35.4 test/versions: "; order != want {
		t.Errorf("the lines begin with %q", order)
	}
	for cell, want := range map[[2]string]string{
		{"1.33.13", "demonstration"}:  "`make demo`",
		{"1.33.13", "clones"}:         "`TestClone` (test/e2e)",
		{"1.33.13", "inline volumes"}: "**failed**: `TestInlineVolume` (test/e2e)",
		{"1.33.13", "claim index"}:    "lacks it: MutatingAdmissionPolicy is of Kubernetes 1.36",
		{"1.33.13", "expansion"}:      "not run", // of this release
		{"1.33.13", "real kubelets"}:  "**failed**: `TestCSI` (test/nodes) 1.32,1.33, `TestNodes` (test/nodes) 1.33",
		{"1.33.13", "test/e2e"}:       "1 passed, 1 lack, **1 failed**",
		{"1.33.13", "test/identity"}:  "not run",
		{"1.34.4", "snapshots"}:       "was",
		{"1.34.4", "clones"}:          "not run",
		{"1.35.4", "clones"}:          "`TestClone` (test/e2e)",
		{"1.35.4", "expansion"}:       "kept",
		{"1.35.4", "test/e2e"}:        "2 passed", // of more tests
	} {
		if is := rows[cell[0]][cell[1]]; is != want {
			t.Errorf("%s: %q, want %q", cell, is, want)
		}
	}
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
			text := hosttest.Need(os.ReadFile(file))(t)
			tests += pkg + "\n" + string(text)
		}
	}
	for _, name := range names() {
		if !strings.Contains(tests, "\nfunc "+name+"(t *testing.T)") {
			t.Errorf("there is no test %s", name)
		}
	}
}
