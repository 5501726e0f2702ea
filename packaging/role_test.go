package packaging

import (
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// The role's files are YAML, use the variables that have a default and no other, and install.md
// names no other; make test-ansible has Ansible run them.
func TestRole(t *testing.T) {
	used := map[string]bool{}
	variable := regexp.MustCompile(`hostpath_provisioner_\w+`)
	note := func(text string) {
		for _, name := range variable.FindAllString(text, -1) {
			used[name] = true
		}
	}
	var defaults map[string]any
	err := fs.WalkDir(os.DirFS("ansible"), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile("ansible/" + path)
		if err != nil {
			return err
		}
		var content any
		if strings.HasSuffix(path, ".yml") {
			if err := yaml.Unmarshal(text, &content); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		if strings.HasSuffix(path, "defaults/main.yml") {
			defaults, _ = content.(map[string]any)
			return nil
		}
		note(string(text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	known := slices.Sorted(maps.Keys(defaults))
	delete(used, "hostpath_provisioner_failed") // its own
	if got := slices.Sorted(maps.Keys(used)); !slices.Equal(got, known) {
		t.Errorf("the role uses %q, and has defaults for %q", got, known)
	}
	for _, name := range variable.FindAllString(string(page), -1) {
		if !slices.Contains(known, name) {
			t.Errorf("install.md has a variable %s, and the role has none", name)
		}
	}
}
