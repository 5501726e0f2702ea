package model

import (
	"path/filepath"
	"testing"
)

// TestModelled plays orders that broke an invariant, or would without what mends it, and that the
// stage of TestReal cannot play.
func TestModelled(t *testing.T) {
	x, err := newExplorer(0)
	if err != nil {
		t.Fatal(err)
	}
	defer x.close()
	files, err := filepath.Glob(filepath.Join("testdata", "modelled", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no orders are kept: %v", err)
	}
	for _, file := range files {
		o, err := readOrder(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := x.workers[0].follow(o, nil)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if wrong := x.check(x.workers[0], &s); wrong != "" || s.busy() {
			t.Errorf("%s: %q; the daemon is about to: %s", file, wrong, x.workers[0].asked(&s, 0))
		}
	}
}
