package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const kept = "../hostpath-provisioner.json"

// What is kept is what is generated from the metrics that there are.
func TestKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dashboard.json")
	var said strings.Builder
	if code := run([]string{file}, &said); code != 0 {
		t.Fatalf("exit code %d: %s", code, &said)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(kept)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v: %s is not what is generated; run: make dashboard", err, kept)
	}
}

// A metric that no panel shows, and an expression with one that there is not, are named; so is a
// reason for a metric that is shown, or that there is not.
func TestRefuses(t *testing.T) {
	known := catalog{ours + "up": {"Help.", []string{"pool"}}, ours + "down": {}, "go_threads": {}}
	shows := func(expressions ...string) []row {
		p := panel{"Title", lines, 8, "", nil}
		for _, e := range expressions {
			p.queries = append(p.queries, query{e, ""})
		}
		return []row{{"Row", []panel{p}}}
	}
	for name, c := range map[string]struct {
		rows   []row
		reason string
		want   string
	}{
		"all":                 {shows("<up> + <down>"), "", ""},
		"one is not shown":    {shows("<up>"), "", ours + "down is in no panel"},
		"and has a reason":    {shows("<up>"), "down", ""},
		"shown, and a reason": {shows("<up>", "<down>"), "down", "has a reason not to be"},
		"a reason for none":   {shows("<up> + <down>"), "left", ours + "left is no metric"},
		"a name that is misspelt": {shows("<upp>", "<up> + <down>"), "",
			`panel "Title": ` + ours + "upp is no metric"},
		"another's": {shows("<=go_treads>", "<up> + <down>"), "", "go_treads is no metric"},
	} {
		notShown = map[string]string{}
		if c.reason != "" {
			notShown[c.reason] = "nobody asks for it"
		}
		text, err := generate(c.rows, known)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || text != nil):
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	notShown = map[string]string{}
	var said strings.Builder
	if code := run(nil, &said); code != 2 || !strings.Contains(said.String(), "usage: ") {
		t.Errorf("exit code %d: %s", code, &said)
	}
	if code := run([]string{"/no/such/file"}, &said); code != 1 {
		t.Errorf("exit code %d: %s", code, &said)
	}
}

// Each metric is asked of the nodes and, where it has a pool, of the pools that are chosen.
func TestSelectors(t *testing.T) {
	filled, names, err := readCatalog().fill(
		"<ready> <pool_open> <=go_goroutines> <provision_duration_seconds_bucket>")
	const node = `instance=~"$node"`
	want := ours + `ready{` + node + `} ` + ours + `pool_open{` + node + `,pool=~"$pool"} ` +
		`go_goroutines{job="hostpath-provisioner",` + node + `} ` +
		ours + `provision_duration_seconds_bucket{` + node + `,pool=~"$pool"}`
	if err != nil || filled != want || len(names) != 4 ||
		names[3] != ours+"provision_duration_seconds" {
		t.Errorf("%v, %q\n%s\nwant\n%s", err, names, filled, want)
	}
}
