package state

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestCordon(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	changes, err := Watch(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	changed := func() {
		t.Helper()
		select {
		case <-changes:
		case <-time.After(10 * time.Second):
			t.Error("the change is not seen")
		}
	}
	for _, want := range []bool{true, true, false, false} {
		before, _ := Cordoned(dir, "fast")
		if err := Cordon(dir, "fast", want); err != nil {
			t.Fatal(err)
		}
		if got, err := Cordoned(dir, "fast"); got != want || err != nil {
			t.Errorf("cordoned: %v, %v; want %v", got, err, want)
		}
		if other, _ := Cordoned(dir, "slow"); other {
			t.Error("another pool is cordoned, too")
		}
		if want || before {
			changed()
		}
	}
	cancel()
	for range changes { // ends
	}
	if err := Cordon(dir, "../fast", true); err == nil {
		t.Error("a path is a pool")
	}
	// Whatever stands there counts: it is not followed, and nothing behind it is changed.
	if err := os.Symlink("/nowhere", filepath.Join(dir, "cordoned-fast")); err != nil {
		t.Fatal(err)
	}
	if is, err := Cordoned(dir, "fast"); !is || err != nil {
		t.Errorf("a link: %v, %v", is, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "plain"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if is, err := Cordoned(filepath.Join(dir, "plain"), "fast"); is || err == nil {
		t.Error("what cannot be read is not cordoned, without an error")
	}
}
