package kube

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What the client requests is served by Kubernetes 1.31, the oldest that is supported, but for what
// docs/dev/versions.md says that it lacks. The recorded list is compared with that server where
// this runs on it (make test-versions VERSION=1.31 PARTS=client).
func TestOldestVersionServes(t *testing.T) {
	recorded := filepath.Join("testdata", "served-1.31")
	text, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	served := strings.Split(strings.TrimSpace(string(text)), "\n")
	lacks := map[string]bool{
		"admissionregistration.k8s.io/v1 mutatingadmissionpolicies":       true,
		"admissionregistration.k8s.io/v1 mutatingadmissionpolicybindings": true,
		// Not of Kubernetes itself.
		"snapshot.storage.k8s.io/v1 volumesnapshotcontents": true,
		"snapshot.storage.k8s.io/v1 volumesnapshots":        true,
		"snapshot.storage.k8s.io/v1 volumesnapshotclasses":  true,
	}
	for _, kind := range requested(t) {
		if !slices.Contains(served, kind) && !lacks[kind] {
			t.Errorf("Kubernetes 1.31 does not serve %s", kind)
		}
		delete(lacks, kind)
	}
	for kind := range lacks {
		t.Errorf("%s is not requested any more", kind)
	}
	oldest, err := plane.Before(32)
	if err != nil || !oldest {
		return // of another version, on which only the rest is to be seen
	}
	_, lists, err := plane.Client().Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var now []string
	for _, list := range lists {
		for _, r := range list.APIResources {
			now = append(now, list.GroupVersion+" "+r.Name)
		}
	}
	for _, kind := range served {
		if !slices.Contains(now, kind) {
			t.Errorf("%s has %s, and this server has not", recorded, kind)
		}
	}
}

// requested are the kinds in kinds.go, as "storage.k8s.io/v1 storageclasses".
func requested(t *testing.T) (all []string) {
	source, err := os.ReadFile("kinds.go")
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string]schema.GroupVersion{
		"core": core, "storage": storage, "admission": admission,
		"coordination": coordination, "snapshots": snapshots,
	}
	kinds := regexp.MustCompile(`kindOf\[\S+\]\((\w+),\s+"(\w+)"`)
	for _, kind := range kinds.FindAllStringSubmatch(string(source), -1) {
		all = append(all, groups[kind[1]].String()+" "+kind[2])
	}
	if n := strings.Count(string(source), " = kindOf["); len(all) != n || n == 0 {
		t.Fatalf("%d kinds were found, of %d", len(all), n)
	}
	return all
}
