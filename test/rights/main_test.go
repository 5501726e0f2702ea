package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// Each right that the manifests give has a row or a place elsewhere, and no row is of another. Each
// row's test is there, and so is the one that is elsewhere.
func TestTable(t *testing.T) {
	known := []string{}
	for right, text := range elsewhere {
		known = append(known, right)
		found := regexp.MustCompile(`^(Test\w+) \((\S+)\): `).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("%s: %s", right, text)
		}
		wantTest(t, found[2], found[1])
	}
	for _, r := range table {
		known = append(known, r.right)
		wantTest(t, "test/"+r.where, r.test)
	}
	if slices.Sort(known); !slices.Equal(known, given()) {
		t.Errorf("the table has\n%s\nthe manifests give\n%s", strings.Join(known, "\n"), strings.Join(given(), "\n"))
	}
}

func wantTest(t *testing.T, where, name string) {
	t.Helper()
	texts, err := filepath.Glob(filepath.Join("..", "..", where, "*_test.go"))
	if err != nil || !slices.ContainsFunc(texts, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "\nfunc "+name+"(t ")
	}) {
		t.Errorf("%s has no %s", where, name)
	}
}

// An audit log counts the daemons' requests, refused ones, and those for subresources. Other
// identities' do not count, nor does a line that was cut short.
func TestRequests(t *testing.T) {
	dir := t.TempDir()
	if _, err := requests(dir); err == nil {
		t.Error("a directory without logs is no error")
	}
	line := func(user, verb, resource, sub, code string) string {
		return `{"verb":"` + verb + `","user":{"username":"` + user + `"},"objectRef":{"resource":"` + resource + `","subresource":"` + sub + `"},"responseStatus":{"code":` + code + "}}\n"
	}
	text := line(account, "get", "pods", "", "200") + line(account, "get", "pods", "", "403") + line("x", "list", "pods", "", "403") + line(account, "patch", "a", "b", "409") + `{"verb":"li`
	hosttest.Check(t, os.WriteFile(filepath.Join(dir, "1.log"), []byte(text), 0o600))
	got, err := requests(dir)
	if err != nil || len(got) != 2 || got["get pods"] != (asked{2, 1}) || got["patch a/b"] != (asked{1, 0}) {
		t.Errorf("%v, %v", got, err)
	}
	var out strings.Builder
	if err := unused(&out, dir); err == nil || !strings.Contains(out.String(), "UNUSED get nodes\n") || strings.Contains(out.String(), "UNUSED get pods") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// The table of the documentation is this one.
func TestDocumented(t *testing.T) {
	rows := map[string]string{}
	for _, r := range table {
		rows[r.right] = fmt.Sprintf("| `%s` | %s | `%s` (test/%s) |\n", r.right, r.breaks, r.test, r.where)
	}
	for right, text := range elsewhere {
		test, breaks, _ := strings.Cut(text, ": ")
		test, where, _ := strings.Cut(test, " ")
		rows[right] = fmt.Sprintf("| `%s` | %s | `%s` %s |\n", right, breaks, test, where)
	}
	want := "| right | without it | test |\n|---|---|---|\n"
	for _, right := range given() {
		want += rows[right]
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "dev", "security.md"))
	if err != nil || !strings.Contains(string(page), want) {
		t.Errorf("docs/dev/security.md has another table than\n%s%v", want, err)
	}
}
