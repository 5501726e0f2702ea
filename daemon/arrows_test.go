package daemon

import (
	"go/ast"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/hostpath-provisioner/hostpath-provisioner/"

// arrows are all imports that the project's own packages may make of each other. A package that is
// not here may not exist: where does the new package belong?
var arrows = map[string][]string{
	"cmd/hostpath-provisioner": {"daemon", "daemon/adopt", "daemon/adopt/rules", "daemon/capacity", "daemon/clustercheck", "daemon/config", "daemon/confine", "daemon/csi", "daemon/csi/freeze", "daemon/follow", "daemon/forget", "daemon/inline", "daemon/kube", "daemon/leadership", "daemon/mountpoint", "daemon/ownership", "daemon/pause", "daemon/plan", "daemon/prepare", "daemon/prober", "daemon/record", "daemon/state", "daemon/storagecapacity", "daemon/usage", "daemon/volume", "daemon/why", "daemon/words", "docs", "hostcheck", "hostcheck/mounts", "hostcheck/quota", "packaging", "packaging/charts", "selinux", "systemd"},
	"daemon":                   {"daemon/away", "daemon/capacity", "daemon/claimfilter", "daemon/claimindex", "daemon/config", "daemon/confine", "daemon/controller", "daemon/gate", "daemon/inline", "daemon/kube", "daemon/leadership", "daemon/metrics", "daemon/mountpoint", "daemon/ownership", "daemon/pause", "daemon/plan", "daemon/presence", "daemon/prober", "daemon/report", "daemon/snapshotapi", "daemon/state", "daemon/storagecapacity", "daemon/usage", "daemon/volume", "daemon/webconfig", "daemon/words", "hostcheck", "hostcheck/mounts", "selinux", "systemd"},
	"daemon/adopt":             {"daemon/adopt/rules", "daemon/plan", "daemon/record", "daemon/unpublish", "daemon/volume", "hostcheck/mounts"},
	"daemon/adopt/rules":       {"daemon/plan", "daemon/record"},
	"daemon/away":              {"daemon/plan", "daemon/report", "daemon/words"},
	"daemon/begun":             {},
	"daemon/binding":           {"daemon/plan", "daemon/report", "daemon/words"},
	"daemon/capacity":          {"hostcheck/mounts"},
	"daemon/claimfilter":       {"daemon/plan"},
	"daemon/claimindex":        {"daemon/plan"},
	"daemon/clustercheck":      {"daemon/words"},
	"daemon/config":            {"hostcheck/quota"},
	"daemon/confine":           {"hostcheck/quota", "hostcheck/subvolume"},
	"daemon/controller":        {"daemon/begun", "daemon/binding", "daemon/capacity", "daemon/disk", "daemon/everynode", "daemon/expansion", "daemon/gate", "daemon/leadership", "daemon/ownership", "daemon/plan", "daemon/record", "daemon/report", "daemon/snapshotapi", "daemon/usage", "daemon/volume", "daemon/volume/treecopy", "daemon/words", "hostcheck", "hostcheck/subvolume"},
	"daemon/csi":               {"daemon/config", "daemon/csi/freeze", "daemon/csi/target", "daemon/inline", "daemon/ipc", "daemon/keylock", "daemon/pause", "daemon/plan", "daemon/prober", "daemon/record", "daemon/state", "daemon/volume", "hostcheck"},
	"daemon/csi/freeze":        {},
	"daemon/csi/target":        {"hostcheck/mounts", "hostcheck/openat"},
	"daemon/disk":              {"daemon/capacity", "daemon/gate", "daemon/record", "daemon/usage", "daemon/volume", "hostcheck", "hostcheck/mounts"},
	"daemon/everynode":         {"daemon/begun", "daemon/capacity", "daemon/disk", "daemon/plan", "daemon/record", "daemon/report", "daemon/volume", "daemon/words", "hostcheck"},
	"daemon/expansion":         {"daemon/begun", "daemon/capacity", "daemon/disk", "daemon/leadership", "daemon/plan", "daemon/record", "daemon/report", "daemon/volume", "daemon/words"},
	"daemon/follow":            {"daemon/plan", "daemon/record", "daemon/report", "daemon/snapshotapi", "daemon/unpublish", "daemon/volume", "daemon/words", "hostcheck/mounts"},
	"daemon/forget":            {"daemon/leadership", "daemon/plan", "daemon/presence", "daemon/report", "daemon/snapshotapi", "daemon/unpublish", "daemon/words"},
	"daemon/gate":              {"hostcheck", "hostcheck/mounts"},
	"daemon/inline":            {"daemon/ipc", "hostcheck/mounts", "hostcheck/openat"},
	"daemon/ipc":               {},
	"daemon/keylock":           {},
	"daemon/kube":              {"daemon/claimindex", "daemon/leadership", "daemon/plan", "daemon/presence", "daemon/snapshotapi", "daemon/storagecapacity", "daemon/words"},
	"daemon/leadership":        {"daemon/plan", "daemon/report"},
	"daemon/metrics":           {"daemon/gate", "daemon/plan", "daemon/usage", "hostcheck"},
	"daemon/mountpoint":        {"daemon/ipc", "hostcheck", "hostcheck/openat", "hostcheck/quota"},
	"daemon/ownership":         {"daemon/disk", "daemon/plan", "daemon/record", "daemon/state", "daemon/words", "hostcheck"},
	"daemon/pause":             {"daemon/ipc"},
	"daemon/plan":              {"daemon/capacity", "daemon/record", "daemon/snapshotapi", "daemon/words"},
	"daemon/prepare":           {"daemon/config", "daemon/state", "hostcheck", "hostcheck/mounts"},
	"daemon/presence":          {},
	"daemon/prober":            {"daemon/config", "daemon/mountpoint", "daemon/plan", "daemon/state", "daemon/volume", "hostcheck"},
	"daemon/record":            {},
	"daemon/report":            {"daemon/plan", "daemon/snapshotapi", "daemon/words"},
	"daemon/snapshotapi":       {},
	"daemon/state":             {"hostcheck", "hostcheck/openat"},
	"daemon/storagecapacity":   {"daemon/plan"},
	"daemon/unpublish":         {"daemon/plan"},
	"daemon/usage":             {"daemon/words", "hostcheck/quota"},
	"daemon/volume":            {"daemon/keylock", "daemon/record", "daemon/usage", "daemon/volume/tree", "daemon/volume/treecopy", "daemon/words", "hostcheck", "hostcheck/mounts", "hostcheck/openat", "hostcheck/quota", "hostcheck/subvolume", "selinux"},
	"daemon/volume/tree":       {"hostcheck/mounts", "hostcheck/openat"},
	"daemon/volume/treecopy":   {"daemon/volume/tree", "daemon/words", "hostcheck/openat"},
	"daemon/why":               {"daemon/plan", "daemon/snapshotapi", "daemon/storagecapacity", "daemon/words"},
	"daemon/words":             {},
	"hostcheck":                {"daemon/words", "hostcheck/mounts", "hostcheck/openat", "hostcheck/quota", "selinux"},
	"hostcheck/openat":         {},
	"hostcheck/quota":          {"hostcheck/openat"},
	"hostcheck/mounts":         {"hostcheck/openat"},
	"hostcheck/subvolume":      {"hostcheck/openat"},
	"packaging":                {"daemon/claimindex"},
	"packaging/catalog":        {"docs", "systemd"},
	"packaging/charts":         {"packaging"},
	"packaging/licenses":       {},
	"packaging/install":        {},
	"packaging/manual":         {},
	"selinux":                  {},
	"systemd":                  {},
}

// TestArrows reads the imports of every package that is shipped.
func TestArrows(t *testing.T) {
	seen := map[string]bool{}
	eachFile(t, []string{"cmd", "daemon", "hostcheck", "packaging", "selinux", "systemd"}, func(pkg, name string, file *ast.File) {
		seen[pkg] = true
		for _, spec := range file.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			own, ok := strings.CutPrefix(imported, module)
			if ok && !slices.Contains(arrows[pkg], own) {
				t.Errorf("%s imports %s", name, own)
			}
		}
	})
	for pkg := range seen {
		if _, known := arrows[pkg]; !known {
			t.Errorf("package %s has no place in the list of arrows", pkg)
		}
	}
	for pkg := range arrows {
		if !seen[pkg] {
			t.Errorf("package %s is in the list of arrows and does not exist", pkg)
		}
	}
}
