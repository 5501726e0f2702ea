package docs

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The versions of Kubernetes that are said to be supported were tried with this client-go: a change
// of it makes the page wrong, until what is in its table was run again.
func TestVersionsPage(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page, readme := read("dev/versions.md"), read("../README.md")
	client := regexp.MustCompile(`k8s.io/client-go (v0\.\d+)\.`).FindStringSubmatch(read("../go.mod"))
	if client == nil || !strings.Contains(page, "requires client-go "+client[1]+",") {
		t.Errorf("the page is of another client-go than %q: run what its section says", client)
	}
	rows := regexp.MustCompile(`(?m)^\| (1\.\d+)\.\d+ \| (.*) \|$`).FindAllStringSubmatch(page, -1)
	ours := regexp.MustCompile(`k8s.io/kubernetes v(1\.\d+)\.`).FindStringSubmatch(read("../test/controlplane/go.mod"))
	versions := []string{ours[1]}
	for _, row := range rows {
		versions = append(versions, row[1])
		if !strings.HasPrefix(row[2], "`make demo` | ") || strings.Contains(row[2], "failed") {
			t.Errorf("on %s not all is well: %s", row[1], row[2])
		}
	}
	slices.Sort(versions)
	for i := range versions[1:] {
		if next(versions[i]) != versions[i+1] {
			t.Errorf("no version between %s and %s has a row", versions[i], versions[i+1])
		}
	}
	want := "Kubernetes " + versions[0] + " to " + versions[len(versions)-1]
	for name, text := range map[string]string{"README.md": readme, "install.md": read("install.md")} {
		if !strings.Contains(text, want) {
			t.Errorf("%s does not say %q", name, want)
		}
	}
}

// next is 1.34 of 1.33.
func next(version string) string {
	minor, err := strconv.Atoi(strings.TrimPrefix(version, "1."))
	if err != nil {
		return version
	}
	return fmt.Sprintf("1.%d", minor+1)
}
