package docs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

var driverOf = regexp.MustCompile(`\[Driver: ([^\]]+)\]`)

// The numbers of Kubernetes' own tests are those that make test-upstream wants to pass, of each
// driver definition and of StatefulSets.
func TestUpstreamCounts(t *testing.T) {
	phrases := map[string]string{
		"hostpath-provisioner": "%d with `csi`",
		"hostpath":             "%d with `hostPath`",
		"local":                "%d with `local`",
		"immediate":            "%d with a class that binds at once",
		"":                     "%d of StatefulSets",
	}
	counts := map[string]int{}
	for name := range strings.Lines(read(t, "../test/upstream/expected")) {
		part := ""
		if found := driverOf.FindStringSubmatch(name); found != nil {
			part = found[1]
		}
		counts[part]++
	}
	page := read(t, "dev/proofs.md")
	for part, count := range counts {
		if phrase := fmt.Sprintf(phrases[part], count); phrases[part] == "" || !strings.Contains(page, phrase) {
			t.Errorf("docs/dev/proofs.md does not say %q, of driver %q", phrase, part)
		}
	}
	if len(counts) != len(phrases) {
		t.Errorf("test/upstream/expected has %v", counts)
	}
}

// The tests are of the release that they run against, and the page says of which.
func TestUpstreamVersion(t *testing.T) {
	version := regexp.MustCompile(`k8s\.io/kubernetes (v[0-9.]+)\n`)
	tests := version.FindStringSubmatch(read(t, "../test/upstream/go.mod"))
	cluster := version.FindStringSubmatch(read(t, "../test/controlplane/go.mod"))
	if tests == nil || cluster == nil || tests[1] != cluster[1] {
		t.Fatalf("test/upstream is of %q, test/controlplane of %q", tests, cluster)
	}
	if phrase := "(those of " + tests[1] + " "; !strings.Contains(read(t, "dev/proofs.md"), phrase) {
		t.Errorf("docs/dev/proofs.md does not say %q", phrase)
	}
}
