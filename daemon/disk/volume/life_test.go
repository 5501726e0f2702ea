package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// What a pool holds at each station of a volume's life, name by name.
func TestLife(t *testing.T) {
	for name, life := range map[string]struct {
		calls string
		want  string // what is there beyond the prepared pool
	}{
		"made":                 {"Create", "default-data-pvc-1/ volumes/pvc-1.json"},
		"made twice":           {"Create Create", "default-data-pvc-1/ volumes/pvc-1.json"},
		"undone":               {"Create Undo", ""},
		"trashed":              {"Create Trash", "trash/pvc-1/ volumes/pvc-1.json"},
		"gone":                 {"Create Trash Purge", ""},
		"gone, asked again":    {"Create Trash Purge Trash Purge Undo", ""},
		"kept":                 {"Create Retain Purge Sweep", "default-data-pvc-1/ volumes/pvc-1.json"},
		"kept, deleted anyway": {"Create Retain Trash Purge", ""},
		"not held, and swept":  {"Create Unhold Sweep", "default-data-pvc-1/ volumes/pvc-1.json"},
		"not held, deleted":    {"Create Unhold Trash Purge", ""},
		"put back":             {"Create Trash PutBack PutBack", "default-data-pvc-1/ volumes/pvc-1.json"},
		"put back, and gone":   {"Create Trash PutBack Trash Purge", ""},
		"archived":             {"Create Archive Purge", "archive/pvc-1/ archive/pvc-1.json"},
		"made again":           {"Create Trash Purge Create", "default-data-pvc-1/ volumes/pvc-1.json"},
	} {
		t.Run(name, func(t *testing.T) {
			r := onTmpfs(t)
			empty := entries(contents(t, r.path))
			all := calls(r)
			all["Create"] = func() error { _, err := r.Create(context.Background(), r.id, spec(pv)); return err }
			all["Purge"] = func() error { _, err := r.Purge(context.Background(), r.id, pv); return err }
			for _, call := range strings.Fields(life.calls) {
				if err := all[call](); err != nil {
					t.Fatalf("%s: %v", call, err)
				}
			}
			var got []string
			for e := range entries(contents(t, r.path)) {
				if !empty[e] {
					got = append(got, e)
				}
			}
			want := entriesOf(life.want)
			if fmt.Sprint(sortedList(got)) != fmt.Sprint(want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// entries are the names in a printed tree, directories with a slash.
func entries(tree string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(tree) {
		name, rest, _ := strings.Cut(line, " ")
		name = strings.TrimPrefix(strings.Trim(name, `"`), metaDir+"/")
		if strings.HasPrefix(rest, "d") {
			name += "/"
		}
		all[name] = true
	}
	return all
}

func entriesOf(text string) []string { return sortedList(strings.Fields(text)) }

func sortedList(all []string) []string {
	set := map[string]bool{}
	for _, e := range all {
		set[e] = true
	}
	return sorted(set)
}

// The marker is written once, and only where nothing surprising is.
func TestInitMarkerSurprises(t *testing.T) {
	for name, text := range map[string]string{"a file": "file", "a link": "link"} {
		r := restarted(&rig{path: t.TempDir()})
		r.id = pool.Identity(t, r.path)
		surprise(t, r.meta(), text)
		before := contents(t, r.path)
		if err := r.InitMarker(t.Context(), r.id, marker); err == nil || errors.Is(err, ErrDirectoryReplaced) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
		if after := contents(t, r.path); after != before {
			t.Errorf("%s: touched:\n%s", name, after)
		}
	}
}

// A pool that has another marker is of another daemon, and stays as it is.
func TestInitMarkerOfAnother(t *testing.T) {
	r := onTmpfs(t)
	before := contents(t, r.path)
	for name, other := range map[string]string{"another": "{\"version\": 2}\n", "the beginning": string(marker[:5]), "none": ""} {
		if err := r.InitMarker(t.Context(), r.id, []byte(other)); !errors.Is(err, ErrPrepared) {
			t.Errorf("%s: got %v, want ErrPrepared", name, err)
		}
	}
	if after := contents(t, r.path); after != before {
		t.Errorf("left\n%swas\n%s", after, before)
	}
}

func surprise(t *testing.T, path, kind string) {
	if kind == "file" {
		write(t, path, "not ours")
		return
	}
	must(t, os.Symlink(t.TempDir(), path))
}
