package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

var update = flag.Bool("update", false, "write docs/states.md anew")

// drawn are the worlds that the page is drawn from. They are explored whole.
var drawn = []string{"killed", "forced", "restored", "archived"}

// drawing is what a volume went through.
type drawing struct {
	ways   map[string]bool // from place to place, with the call
	places map[string]map[record.Place]bool
}

func (d *drawing) note(w *worker, before *state, m move, after *state) {
	was, is := w.on(before, lives-1), w.on(after, lives-1)
	object := "none"
	if v := after.api.volumes[lives-1]; v.exists {
		object = string(phases[v.phase])
	}
	if d.places[object] == nil {
		d.places[object] = map[record.Place]bool{}
	}
	d.places[object][is.place] = true
	if was.place != is.place && m.op.kind == onDisk {
		d.ways[fmt.Sprintf("%-8s  -- %-8s -->  %s", was.place, m.op.disk.name, is.place)] = true
	}
}

// text is the page's generated part.
func (d *drawing) text() string {
	var b strings.Builder
	b.WriteString("```text\n")
	b.WriteString(strings.Join(slices.Sorted(maps.Keys(d.ways)), "\n"))
	b.WriteString("\n```\n\n")
	all := []record.Place{nowhere, inStaging, inPool, inTrash, emptying, inArchive}
	b.WriteString("| object |")
	for _, place := range all {
		b.WriteString(" " + string(place) + " |")
	}
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

// TestStates compares docs/states.md with what the model went through.
func TestStates(t *testing.T) {
	d := &drawing{ways: map[string]bool{}, places: map[string]map[record.Place]bool{}}
	for _, name := range drawn {
		x, err := newExplorer(0)
		if err != nil {
			t.Fatal(err)
		}
		x.workers[0].product.close()
		x.workers, x.each = x.workers[len(x.workers)-1:], d.note
		x.explore(t.Context(), worldOf(t, name).first())
		x.close()
	}
	file := filepath.Join(rig.Root(), "docs", "states.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), "<!-- drawn by test/model -->\n")
	_, after, ended := strings.Cut(rest, "<!-- end -->\n")
	if !found || !ended {
		t.Fatal("docs/states.md has no place for the drawing")
	}
	want := before + "<!-- drawn by test/model -->\n" + d.text() + "<!-- end -->\n" + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(page) {
		t.Errorf("docs/states.md is not what the model went through (go test ./test/model -run TestStates -update):\n%s", d.text())
	}
}

// TestInvariantsAreTold: docs/guarantees.md has each invariant.
func TestInvariantsAreTold(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(rig.Root(), "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	told := func(name, means string) {
		if line := fmt.Sprintf("| `%s` | %s |", name, means); !strings.Contains(string(page), line) {
			t.Errorf("docs/guarantees.md has no line %s", line)
		}
	}
	for _, i := range slices.Concat(invariants, settlements) {
		told(i.name, i.means)
	}
	for _, i := range slices.Concat(snapshotInvariants, snapshotSettlements) {
		told(i.name, i.means)
	}
	for _, a := range adoptionSettlements {
		told(a.name, a.means)
	}
	for _, a := range slices.Concat(accounts, settledAccounts) {
		told(a.name, a.means)
	}
}
