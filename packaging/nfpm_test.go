package packaging

import (
	"os"
	"path"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Of rpm a package owns the directories that it names, and its removal leaves the others: each
// that bears this program's name is named. The documents are added by build.sh.
func TestPackageOwnsItsDirectories(t *testing.T) {
	text, err := os.ReadFile("nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Contents []struct{ Dst, Type, Packager string }
	}
	if err := yaml.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	used := []string{"/usr/share/doc/hostpath-provisioner/docs/pictures/x.svg"}
	for _, c := range list.Contents {
		switch {
		case c.Packager == "deb":
		case c.Type == "dir":
			named[c.Dst] = true
		default:
			used = append(used, c.Dst)
		}
	}
	for _, file := range used {
		if strings.HasSuffix(file, "/") {
			file += "x"
		}
		for dir := path.Dir(file); strings.Contains(dir,
			"/hostpath-provisioner"); dir = path.Dir(dir) {
			if !named[dir] {
				t.Errorf("%s is in %s, which no package owns", file, dir)
			}
		}
	}
}
