package docs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// The numbers of Kubernetes' own tests are those that make test-upstream wants to pass.
func TestUpstreamCounts(t *testing.T) {
	phrases := map[string]string{
		"hostpath":             "%s with `hostPath`",
		"local":                "%s with `local`",
		"hostpath-provisioner": "%s with a class that binds at once",
		"StatefulSet":          "%s of StatefulSets",
	}
	page, expected := read(t, "guarantees.md"), strings.Fields(read(t, "../test/upstream/expected"))
	if len(expected) != 2*len(phrases) {
		t.Errorf("test/upstream/expected has %q, and the page tells of %d parts", expected, len(phrases))
	}
	for i := 0; i+1 < len(expected); i += 2 {
		phrase := fmt.Sprintf(phrases[expected[i]], expected[i+1])
		if !strings.Contains(page, phrase) {
			t.Errorf("docs/guarantees.md does not say %q", phrase)
		}
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
	if phrase := "(those of " + tests[1] + " "; !strings.Contains(read(t, "guarantees.md"), phrase) {
		t.Errorf("docs/guarantees.md does not say %q", phrase)
	}
}
