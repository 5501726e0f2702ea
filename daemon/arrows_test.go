package daemon

import (
	"fmt"
	"go/ast"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/hostpath-provisioner/hostpath-provisioner/"

// door is a folder of packages that belong together. Its packages may import each other, and those
// of the doors in to; cmd and daemon, where the parts meet, may import all.
type door struct {
	name, is string
	to       []arrow
}

// arrow is an import of another door's packages, and why it is needed.
type arrow struct{ door, why string }

// doors are all of them. A package that stands behind none has no place.
var doors = []door{
	{"cmd", "the commands: what is typed, and the words and advice that are printed", nil},
	{"daemon", "where the parts meet", nil},
	{"daemon/config", "files to Config", []arrow{
		{"daemon/rules", "what a pool's keys can say"},
		{"hostcheck", "a pool's kind of quota"},
	}},
	{"daemon/spec", "nouns without decisions: record, capacity, snapshot API types, a lock by name", []arrow{
		{"hostcheck", "sizes for people, and what a filesystem has"},
	}},
	{"daemon/rules", "pure and total: what to do with a claim, a volume, a snapshot, a node", []arrow{
		{"daemon/spec", "what the decisions are about"},
		{"hostcheck", "words for people"},
	}},
	{"daemon/disk", "the pool's tree: handle, gate, volumes, what may be in a tenant's directory", []arrow{
		{"daemon/spec", "records and capacity"},
		{"hostcheck", "the pool's identity, and opening beneath a descriptor"},
		{"selinux", "labels of directories"},
	}},
	{"daemon/kube", "the API: requests, watches, events", []arrow{
		{"daemon/controllers", "the objects and interfaces that controllers ask for"},
		{"daemon/rules", "labels and annotations"},
		{"daemon/spec", "snapshot API types"},
		{"hostcheck", "words for people"},
	}},
	{"daemon/controllers", "when work begins, waits and is repeated", []arrow{
		{"daemon/disk", "handles on open pools"},
		{"daemon/host", "the marker and its locks"},
		{"daemon/rules", "decisions"},
		{"daemon/spec", "records and capacity"},
		{"hostcheck", "reports of pools"},
	}},
	{"daemon/node", "for kubelet, and what confines processes", []arrow{
		{"daemon/config", "the pools that it mounts from"},
		{"daemon/disk", "volumes by their records"},
		{"daemon/host", "a pool's state, and messages between processes"},
		{"daemon/rules", "reasons"},
		{"daemon/spec", "records"},
		{"hostcheck", "mounts, and opening beneath a descriptor"},
	}},
	{"daemon/host", "this machine: state across restarts, mount points, preparation", []arrow{
		{"daemon/config", "the pools"},
		{"daemon/disk", "a pool's calls that wait"},
		{"daemon/rules", "reasons"},
		{"hostcheck", "what is judged"},
	}},
	{"daemon/adopt", "what a person asks for: take over, move, forget a node's volumes, and why", []arrow{
		{"daemon/controllers", "leases, capacities, and events that are not repeated"},
		{"daemon/disk", "records in an open pool"},
		{"daemon/rules", "decisions"},
		{"daemon/spec", "records"},
		{"hostcheck", "a pool's identity"},
	}},
	{"daemon/metrics", "counters and gauges, and to whom they are served", []arrow{
		{"daemon/disk", "gates and usage"},
		{"daemon/rules", "reasons"},
		{"hostcheck", "reports"},
	}},
	{"hostcheck", "finds out whether this host is what it must be; reads only", []arrow{
		{"selinux", "labels"},
	}},
	{"docs", "the page of reasons", nil},
	{"packaging", "packages, manifests and policies", []arrow{
		{"daemon/metrics", "the metrics that the dashboard shows"},
		{"daemon/kube", "the policy of the claim index"},
		{"docs", "what the journal's catalog says of a reason"},
		{"systemd", "messages of the journal's catalog"},
	}},
	{"selinux", "labels and the policy module", nil},
	{"systemd", "units, notification and the journal", nil},
}

// TestArrows reads the imports of every package that is shipped. With -v it prints the map.
func TestArrows(t *testing.T) {
	used := map[string]bool{}
	trees := []string{"cmd", "daemon", "docs", "hostcheck", "packaging", "selinux", "systemd"}
	eachFile(t, trees, func(pkg, name string, file *ast.File) {
		from := doorOf(pkg)
		if from.name == "" {
			t.Errorf("package %s is behind no door", pkg)
		}
		for _, spec := range file.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			own, ok := strings.CutPrefix(imported, module)
			to := doorOf(own)
			if !ok || to.name == from.name || from.name == "cmd" || from.name == "daemon" {
				continue
			}
			used[from.name+" -> "+to.name] = true
			if !slices.ContainsFunc(from.to, func(a arrow) bool { return a.door == to.name }) {
				t.Errorf("%s imports %s: no arrow leads from %s to %s", name, own, from.name, to.name)
			}
		}
	})
	for _, d := range doors {
		t.Log(d)
		for _, a := range d.to {
			if !used[d.name+" -> "+a.door] {
				t.Errorf("nothing behind %s imports anything behind %s", d.name, a.door)
			}
		}
	}
}

// doorOf is the door that a package is behind: the top folder, or below daemon the next one.
func doorOf(pkg string) door {
	name, below, _ := strings.Cut(pkg, "/")
	if next, _, _ := strings.Cut(below, "/"); name == "daemon" && next != "" {
		name += "/" + next
	}
	if i := slices.IndexFunc(doors, func(d door) bool { return d.name == name }); i >= 0 {
		return doors[i]
	}
	return door{}
}

func (d door) String() string {
	text := d.name + ": " + d.is
	for _, a := range d.to {
		text += fmt.Sprintf("\n    -> %s: %s", a.door, a.why)
	}
	return text
}
