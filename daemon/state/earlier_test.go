package state

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// earlier makes the state directory of a version that kept it one directory higher, and the one of
// now.
func earlier(t *testing.T, pools ...string) (above, dir string) {
	t.Helper()
	above = hosttest.Dir(t)
	for _, pool := range pools {
		m := marker("old-" + pool)
		m.Pool = pool
		if err := Remember(above, pool, m); err != nil {
			t.Fatal(err)
		}
	}
	return above, filepath.Join(above, "state")
}

func remembers(t *testing.T, dir, pool, want string) {
	t.Helper()
	if id, err := Remembered(dir, pool); id != want || err != nil {
		t.Errorf("pool %s: %q, %v; want %q", pool, id, err, want)
	}
}

// What an earlier version remembered counts before it is moved, and after; a call that was cut
// short between two files is ended by the next one.
func TestTakeOver(t *testing.T) {
	above, dir := earlier(t, "fast", "slow")
	remembers(t, dir, "fast", "old-fast")
	if err := os.MkdirAll(filepath.Join(dir, "pools"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(above, "pools/fast.json"), filepath.Join(dir, "pools/fast.json")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		remembers(t, dir, "fast", "old-fast")
		remembers(t, dir, "slow", "old-slow")
		if err := TakeOver(dir); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := os.ReadDir(filepath.Join(above, "pools")); err != nil || len(names) != 0 {
		t.Errorf("left: %v, %v", names, err)
	}
}

// What was remembered since is newer.
func TestTakeOverKeepsTheNewer(t *testing.T) {
	above, dir := earlier(t, "fast")
	if err := errors.Join(Remember(dir, "fast", marker("new")), TakeOver(dir)); err != nil {
		t.Fatal(err)
	}
	remembers(t, dir, "fast", "new")
	if names, err := os.ReadDir(filepath.Join(above, "pools")); err != nil || len(names) != 0 {
		t.Errorf("left: %v, %v", names, err)
	}
}

// A damaged file of an earlier version is not "nothing remembered", and what is no pool's file
// stays.
func TestTakeOverDamage(t *testing.T) {
	above, dir := earlier(t, "fast")
	if err := errors.Join(os.WriteFile(filepath.Join(above, "pools/fast.json"), []byte("{"), 0o600),
		os.WriteFile(filepath.Join(above, "pools/README"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if id, err := Remembered(dir, "fast"); err == nil {
			t.Errorf("remembered %q", id)
		}
		if err := TakeOver(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(above, "pools/README")); err != nil {
		t.Error(err)
	}
}

// The directory above one of another name is not ours.
func TestTakeOverElsewhere(t *testing.T) {
	above, _ := earlier(t, "fast")
	dir := filepath.Join(above, "mine")
	remembers(t, dir, "fast", "")
	if err := TakeOver(dir); err != nil {
		t.Fatal(err)
	}
	remembers(t, above, "fast", "old-fast")
}
