package docs

import (
	"os"
	"regexp"
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
	var versions []string
	for _, row := range rows {
		versions = append(versions, row[1])
		demo, client := strings.Split(row[2], " | ")[0], strings.Split(row[2], " | ")[1]
		if demo != "`make demo`" || client != "`make client`" {
			t.Errorf("on %s the demonstration %s, the client %s", row[1], demo, client)
		}
		if strings.Contains(row[2], "failed") {
			t.Errorf("on %s something failed: %s", row[1], row[2])
		}
	}
	const all = "1.31 1.32 1.33 1.34 1.35 1.36 1.37"
	if got := strings.Join(versions, " "); got != all {
		t.Errorf("the table has %s", got)
	}
	for _, text := range []string{page, readme} {
		if !strings.Contains(text, "1.31 to 1.37") {
			t.Error("a page does not name the oldest and the newest version")
		}
	}
}
