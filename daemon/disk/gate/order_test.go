package gate

import (
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// All follows the order of New, not that of the reports: the status and its reader count on the
// pool's place.
func TestAllIsInTheOrderOfNew(t *testing.T) {
	pools := []string{"slow", "fast", "archive", "a", "b"}
	g := New(pools...)
	g.Set(hostcheck.Report{Pool: "b", Size: 7}, time.Unix(1, 0))
	g.Set(hostcheck.Report{Pool: "unknown"}, time.Unix(1, 0))
	all := g.All()
	if len(all) != len(pools) {
		t.Fatalf("%d pools, want %d", len(all), len(pools))
	}
	for i, s := range all {
		if s.Report.Pool != pools[i] || s.Checked != (pools[i] == "b") {
			t.Errorf("place %d: pool %s, checked %v", i, s.Report.Pool, s.Checked)
		}
	}
}

// A pool moved when other storage stands in its place, and when it closes; not when it merely gets
// full, because what is removed from it is still the same directory's.
func TestMoved(t *testing.T) {
	state := func(severity hostcheck.Severity, inode uint64) State {
		r := found(severity, "Reason", "m")
		r.Identity = mounts.Identity{MountID: 7, Inode: inode}
		return State{Report: r, Checked: true}
	}
	for _, c := range []struct {
		name string
		a, b State
		want bool
	}{
		{"the same", state(hostcheck.Warn, 2), state(hostcheck.Warn, 2), false},
		{"full", state(hostcheck.Warn, 2), state(hostcheck.Full, 2), false},
		{"other storage", state(hostcheck.Warn, 2), state(hostcheck.Warn, 3), true},
		{"closed", state(hostcheck.Warn, 2), state(hostcheck.Close, 2), true},
		{"other storage while closed", state(hostcheck.Close, 2), state(hostcheck.Close, 3), false},
		{"checked for the first time", State{}, state(hostcheck.Warn, 2), true},
	} {
		if got := Moved(c.a, c.b); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
