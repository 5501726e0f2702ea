package docs

import (
	"regexp"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/packaging/charts"
)

// steps are what has to be done on a node, in order.
var steps = []string{
	"/etc/hostpath-provisioner/config.toml",
	"check --config-only",
	"hostpath-provisioner prepare ",
	"hostpath-provisioner enroll",
	"systemctl enable --now hostpath-provisioner",
}

// missingStep is the first step that a text does not have after those before it, "" if it has all.
func missingStep(text string) string {
	for _, step := range steps {
		_, after, found := strings.Cut(text, step)
		if !found {
			return step
		}
		text = after
	}
	return ""
}

// There is one way in: whoever tells it has the same steps in the same order, and where the
// cluster is prepared by hand, by the same command.
func TestOneWayIn(t *testing.T) {
	const tasks = "../packaging/ansible/hostpath_provisioner/tasks/"
	between := func(text, from, to string) string {
		_, text, _ = strings.Cut(text, from)
		text, _, _ = strings.Cut(text, to)
		return text
	}
	readme := between(read(t, "../README.md"), "## Install on a node\n", "\n## First claim\n")
	install := between(read(t, "install.md"), "## Configure\n", "\n## The first claim\n")
	files := regexp.MustCompile(`(?:import|include)_tasks: (\S+)`)
	role := files.ReplaceAllStringFunc(read(t, tasks+"main.yml"),
		func(line string) string { return read(t, tasks+strings.Fields(line)[1]) })
	role = strings.ReplaceAll(role, "state: started\n    enabled: true", steps[len(steps)-1])
	script := read(t, "../packaging/scripts/postinstall.sh")
	for name, text := range map[string]string{
		"README.md": readme, "docs/install.md": install, "the Ansible role": role,
		"the chart's notes":     charts.Helm("v0.2.0")["templates/NOTES.txt"],
		"what the package says": between(script, "What comes next:", "\nEOF"),
	} {
		if step := missingStep(text); step != "" {
			t.Errorf("%s has no %q in its place", name, step)
		}
	}
	const manifests = "\nhostpath-provisioner manifests --pool-path /srv/fast --class fast" +
		" | kubectl apply -f -\n"
	for name, text := range map[string]string{"README.md": readme, "docs/install.md": install} {
		before, after, found := strings.Cut(text, manifests)
		if !found || !strings.Contains(before, steps[2]) || !strings.Contains(after, steps[3]) {
			t.Errorf("%s has no %q before enrolling", name, strings.TrimSpace(manifests))
		}
	}
}
