package volume

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// What is about to be made again is noted wherever the directory is, and let go with the node's
// name. Both can be repeated, and a volume that is gone by then is fine.
func TestMoving(t *testing.T) {
	for name, away := range map[string]func(*rig) error{
		"in the pool":  func(*rig) error { return nil },
		"in the trash": func(r *rig) error { return r.Trash(t.Context(), r.id, pv) },
	} {
		t.Run(name, func(t *testing.T) {
			r := onTmpfs(t)
			adopted(t, r)
			must(t, away(r))
			before, err := r.Lookup(t.Context(), r.id, pv)
			must(t, err)
			for _, object := range []string{"{}", "{}", `{"x":1}`} {
				must(t, r.Moving(t.Context(), r.id, pv, object))
				want := before
				want.Moving = object
				wantRecord(t, r, want)
			}
			for range 2 {
				must(t, r.Moved(t.Context(), r.id, pv, "node-b"))
				want := before
				want.Node = "node-b"
				wantRecord(t, r, want)
			}
		})
	}
	r := onTmpfs(t)
	prepared(t, r)
	must(t, r.Moved(t.Context(), r.id, pv, "node-b"))
	if err := r.Moving(t.Context(), r.id, pv, "{}"); err == nil {
		t.Error("a volume that is not recorded is noted")
	}
}

// The daemon writes records, too: its sweep takes one away that has no name yet, or it writes its
// own in the same place. The note is in the record all the same, beside what the daemon noted; where
// that does not end, the call says so.
func TestMovingBesideTheDaemon(t *testing.T) {
	for name, test := range map[string]struct {
		times int
		swept bool // or written over
		fails bool
	}{
		"swept once": {1, true, false}, "swept again and again": {attempts, true, true},
		"written over once": {1, false, false}, "written over again and again": {attempts, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := onTmpfs(t)
			adopted(t, r)
			is, err := r.Lookup(t.Context(), r.id, pv)
			must(t, err)
			unnamed := filepath.Join(r.path, metaDir, volumesDir, pv+".json.new")
			left := test.times
			r.atCrashPoint = func(step string) {
				if step != "record durable" || left == 0 {
					return
				}
				left--
				must(t, os.Remove(unnamed))
				if !test.swept {
					is.Retained = true
					text, err := is.Encode()
					must(t, err)
					must(t, os.WriteFile(unnamed, text, 0o600))
				}
			}
			err = r.Moving(t.Context(), r.id, pv, "{}")
			if left > 0 || (err != nil) != test.fails {
				t.Fatalf("%v, and %d times more", err, left)
			}
			if !test.fails {
				is.Moving = "{}"
				wantRecord(t, r, is)
			}
		})
	}
}

func moving(t testing.TB, r *rig) {
	data(t, r)
	must(t, r.Moving(t.Context(), r.id, pv, "{}"))
}

func wantRecord(t *testing.T, r *rig, want record.Record) {
	t.Helper()
	if got, err := r.Lookup(t.Context(), r.id, pv); err != nil || got != want {
		t.Errorf("%v: got\n%+v\nwant\n%+v", err, got, want)
	}
}
