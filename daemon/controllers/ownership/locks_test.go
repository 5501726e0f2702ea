package ownership

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// guarded is the reason for which a pool with this marker is closed by the locks, "" if it is open.
func guarded(l *Locks, name, path, marker string) string {
	r := hostcheck.Report{Pool: name, Path: path, Marker: marker}
	l.Guard(&r)
	f, _ := r.Closed()
	return f.Reason
}

// A marker is one daemon's, under whatever name and path the pool is configured. It can have it
// again and again.
func TestLocks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	first, second := NewLocks(dir, "/var/lib/first"), NewLocks(dir, "/var/lib/second")
	for _, step := range []struct {
		name         string
		by           *Locks
		pool, marker string
		want         string
	}{
		{"a free pool", first, "fast", "m", ""},
		{"the same pool again", first, "fast", "m", ""},
		{"a pool that another daemon has", second, "fast", "m", plan.ReasonPoolInUse},
		{"the same storage by another name", second, "slow", "m", plan.ReasonPoolInUse},
		{"other storage by the same name", second, "fast", "n", ""},
		{"storage that another daemon has, in place of our own", first, "fast", "n", plan.ReasonPoolInUse},
		{"our own storage is still ours", second, "slow", "m", plan.ReasonPoolInUse},
		{"third storage, in place of our own", first, "fast", "o", ""},
		{"our own before is free", second, "slow", "m", ""},
	} {
		if got := guarded(step.by, step.pool, "/srv/"+step.pool, step.marker); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
	first.Keep(nil)
	second.Keep(nil)
}

// A pool that is not configured any more, or has another path, is free for others; one that is
// configured is not.
func TestKeep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	first, second := NewLocks(dir, "/var/lib/first"), NewLocks(dir, "/var/lib/second")
	for _, name := range []string{"kept", "moved", "removed"} {
		if got := guarded(first, name, "/srv/"+name, name); got != "" {
			t.Fatal(got)
		}
	}
	first.Keep(map[Place]bool{{"kept", "/srv/kept"}: true, {"moved", "/mnt/moved"}: true})
	for name, want := range map[string]string{"kept": plan.ReasonPoolInUse, "moved": "", "removed": ""} {
		if got := guarded(second, name, "/srv/"+name, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	first.Keep(nil)
	second.Keep(nil)
}

// A lock whose file was removed is taken again; where it cannot be, the pool is closed.
func TestLockFileIsRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	l := NewLocks(dir, "/var/lib/first")
	defer l.Keep(nil)
	guarded(l, "fast", "/srv/fast", "m")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if got := guarded(l, "fast", "/srv/fast", "m"); got != "" {
		t.Errorf("closed: %s", got)
	}
	if got := guarded(NewLocks(dir, "/var/lib/second"), "fast", "/srv/fast", "m"); got != plan.ReasonPoolInUse {
		t.Errorf("the lock was not taken again: %q", got)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := guarded(l, "fast", "/srv/fast", "m"); got != plan.ReasonStateUnwritable {
		t.Errorf("without a directory for locks: %q", got)
	}
}
