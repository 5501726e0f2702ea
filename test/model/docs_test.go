package model

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

var update = flag.Bool("update", false, "write docs/dev/states.md anew")

// drawnStates is how many states of each world are drawn: no way and no place comes after these.
const drawnStates = 65_000

// drawings are what docs/dev/states.md has.
var drawings = []*drawing{
	{of: "volume", worlds: []string{"killed", "forced", "restored", "archived"}, look: volumeLook(lives - 1)},
	{of: "clone", worlds: []string{"cloned"}, look: volumeLook(2*lives - 1)},
	{of: "snapshot", small: []world{
		{snapshots: true, opening: written, left: often{snapshotsTaken: 1, kills: 1}},
		{snapshots: true, opening: taken, left: often{snapshotsTaken: 1, snapshotEnds: 1}},
	}, look: snapshotLook},
	{of: "adopted volume", small: []world{
		{peer: true, opening: madeByPeer, left: often{adoptions: 1, undoings: 1}},
	}, look: adoptedLook},
}

// drawing is what one thing went through.
type drawing struct {
	of     string
	worlds []string // of those that are explored
	small  []world  // that are explored for the drawing alone
	look   func(w *worker, s *state) (object, place string)
	ways   map[string]bool // from place to place, with the call
	places map[string]map[string]bool
}

// everyPlace are those that a directory can be in.
var everyPlace = []record.Place{nowhere, inStaging, inPool, inTrash, emptying, inArchive}

// foreign is the place of a directory of the pool that has no record.
const foreign = "foreign"

func volumeLook(cell int) func(w *worker, s *state) (object, place string) {
	return func(w *worker, s *state) (object, place string) {
		object = "none"
		if v := s.api.volumes[cell]; v.exists {
			object = string(phases[v.phase])
		}
		return object, string(w.on(s, cell).place)
	}
}

func snapshotLook(w *worker, s *state) (object, place string) {
	switch c := s.api.snapshot; {
	case !c.exists:
		object = "none"
	case c.deleting || c.going:
		object = "being deleted"
	case c.ready:
		object = "ready"
	default:
		object = "not ready"
	}
	return object, string(w.image(s, nodePool).snapshot.place)
}

func adoptedLook(w *worker, s *state) (object, place string) {
	switch v := s.api.volumes[lives-1]; {
	case !v.exists:
		object = "none"
	case v.adopting:
		object = "being adopted"
	case v.adopted:
		object = "adopted"
	default:
		object = "the other provisioner's"
	}
	on := w.on(s, lives-1)
	if on.place == inPool && !on.recorded {
		return object, foreign
	}
	return object, string(on.place)
}

func (d *drawing) note(w *worker, before *state, m move, after *state) {
	_, was := d.look(w, before)
	object, is := d.look(w, after)
	if d.places[object] == nil {
		d.places[object] = map[string]bool{}
	}
	d.places[object][is] = true
	if was != is && m.op.kind == onDisk {
		d.ways[fmt.Sprintf("%-8s  -- %-8s -->  %s", was, m.op.disk.name, is)] = true
	}
}

// text is a generated part of the page.
func (d *drawing) text() string {
	var b strings.Builder
	b.WriteString("```text\n")
	b.WriteString(strings.Join(slices.Sorted(maps.Keys(d.ways)), "\n"))
	b.WriteString("\n```\n\n")
	var all []string
	for _, place := range append(everyPlace[:len(everyPlace):len(everyPlace)], foreign) {
		if slices.ContainsFunc(slices.Collect(maps.Values(d.places)), func(seen map[string]bool) bool { return seen[string(place)] }) {
			all = append(all, string(place))
		}
	}
	b.WriteString("| object | " + strings.Join(all, " | ") + " |")
	b.WriteString("\n|" + strings.Repeat("---|", 1+len(all)) + "\n")
	for _, object := range slices.Sorted(maps.Keys(d.places)) {
		b.WriteString("| " + object + " |")
		for _, place := range all {
			b.WriteString(map[bool]string{true: " yes |", false: " |"}[d.places[object][place]])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// explored draws what is in the worlds.
func (d *drawing) explored(t *testing.T) {
	t.Helper()
	d.ways, d.places = map[string]bool{}, map[string]map[string]bool{}
	all := d.small
	for _, name := range d.worlds {
		all = append(all, hosttest.Need(worldNamed(name))(t))
	}
	for _, of := range all {
		x := newExplorer(t, drawnStates, 1)
		x.each = d.note
		sum := x.explore(t.Context(), x.workers[0].opening(of))
		t.Logf("%s: %d states", d.of, sum.states)
		x.close()
	}
}

// TestStates compares docs/dev/states.md with what the model went through.
func TestStates(t *testing.T) {
	file := filepath.Join(rig.Root(), "docs", "dev", "states.md")
	text := hosttest.Need(os.ReadFile(file))(t)
	page := string(text)
	for _, d := range drawings {
		d.explored(t)
		begins := "<!-- " + d.of + ", drawn by test/model -->\n"
		before, rest, found := strings.Cut(page, begins)
		was, after, ended := strings.Cut(rest, "<!-- end -->\n")
		if !found || !ended {
			t.Fatalf("docs/dev/states.md has no place for the drawing of a %s", d.of)
		}
		if was != d.text() && !*update {
			t.Errorf("docs/dev/states.md is not what the model went through (go test ./test/model -run TestStates -update):\n%s", d.text())
		}
		page = before + begins + d.text() + "<!-- end -->\n" + after
	}
	if *update {
		hosttest.Check(t, os.WriteFile(file, []byte(page), 0o644))
	}
}

// TestInvariantsAreTold: docs/dev/proofs.md has each invariant.
func TestInvariantsAreTold(t *testing.T) {
	page := hosttest.Need(os.ReadFile(filepath.Join(rig.Root(), "docs", "dev", "proofs.md")))(t)
	told := func(name, means string) {
		if line := fmt.Sprintf("| `%s` | %s |", name, means); !strings.Contains(string(page), line) {
			t.Errorf("docs/dev/proofs.md has no line %s", line)
		}
	}
	for _, i := range slices.Concat(invariants, settlements) {
		told(i.name, i.means)
	}
	for _, i := range slices.Concat(snapshotInvariants, snapshotSettlements) {
		told(i.name, i.means)
	}
	for _, i := range adoptionSettlements {
		told(i.name, i.means)
	}
	for _, a := range slices.Concat(accounts, settledAccounts) {
		told(a.name, a.means)
	}
}
