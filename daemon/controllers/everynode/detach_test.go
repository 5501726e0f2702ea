package everynode

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// A node that is alone does all of it at once, for each thing that is to become of the data.
func TestDetach(t *testing.T) {
	for action, want := range map[plan.Action]string{
		plan.Delete:  "trash, discard, purge, tombstone delete, object removed",
		plan.Archive: "archive, purge, tombstone delete, object removed",
		plan.Retain:  "retain, purge, tombstone retain, finalizer off",
		plan.LetGo:   "purge, tombstone delete, object removed",
	} {
		n := newNode()
		n.release()
		h, _ := n.Disk.Open(t.Context())
		after, err := n.Detach(t.Context(), h, n.object, plan.Verdict{Action: action})
		if did := n.did(); err != nil || after != 0 || !strings.EqualFold(did, want) {
			t.Errorf("%s: again after %s, %v, did %q, want %q", action, after, err, did, want)
		}
	}
}

// Of several nodes each takes its own directory away at once; the object goes when the turn of one
// has come, and another one's tombstone makes this node wait before it helps.
func TestDetachByTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.others = 49
		n.release()
		h, _ := n.Disk.Open(t.Context())
		detach := func() time.Duration {
			after, err := n.Detach(t.Context(), h, n.object, deleted)
			if err != nil {
				t.Error(err)
			}
			return after
		}
		after := detach()
		if did := n.did(); did != "trash, discard, purge" || after <= 0 {
			t.Fatalf("did %q, again after %s", did, after)
		}
		if done, again, err := n.Look(t.Context(), "pvc-u"); !done || again != after || err != nil {
			t.Errorf("looked at meanwhile: done %t, again after %s, %v: want %s and no request", done, again, err, after)
		}
		n.tomb = &plan.Tombstone{} // another node is at it
		time.Sleep(after)          // of the bubble's clock
		if again := detach(); again != plan.HelpAfter || n.did() != "" {
			t.Errorf("beside another node: again after %s", again)
		}
		time.Sleep(plan.HelpAfter)
		if again := detach(); again != 0 || n.did() != "object removed" {
			t.Errorf("that other node died: again after %s", again)
		}
		n.watched = nil
		if again := detach(); again != 0 || n.did() != "" {
			t.Error("an object that is gone is removed")
		}
	})
}

// A directory that cannot be taken away keeps the object, and is tried again.
func TestDetachFails(t *testing.T) {
	n := newNode()
	n.release()
	h, _ := n.Disk.Open(t.Context())
	n.diskErr = errors.New("i/o error")
	for range 2 {
		if _, err := n.Detach(t.Context(), h, n.object, deleted); !errors.Is(err, n.diskErr) || n.did() != "" {
			t.Errorf("got %v", err)
		}
	}
	n.diskErr = nil
	if _, err := n.Detach(t.Context(), h, n.object, deleted); err != nil || !strings.HasPrefix(n.did(), "trash, discard") {
		t.Errorf("tried again: %v", err)
	}
}

// What became of a directory is forgotten with the object, and when it was put back.
func TestForget(t *testing.T) {
	for name, forget := range map[string]func(*node){
		"the object is gone": func(n *node) { n.Forget(n.object) },
		"put back":           func(n *node) { n.Attached(n.object) },
	} {
		n := newNode()
		h, _ := n.Disk.Open(t.Context())
		for range 2 {
			if _, err := n.Detach(t.Context(), h, n.object, deleted); err != nil {
				t.Error(err)
			}
			if !slices.Contains(n.done, "trash") {
				t.Errorf("%s: the directory was not taken away: %q", name, n.done)
			}
			n.did()
			forget(n)
		}
	}
}

// A tombstone is applied as it says, and again after a crash.
func TestApplyTombstone(t *testing.T) {
	for action, want := range map[plan.Action]string{
		plan.Delete: "trash, discard, purge", plan.Archive: "archive, purge", plan.Retain: "retain, purge", plan.PutBack: "put back, retain, purge",
	} {
		n := newNode()
		h, _ := n.Disk.Open(t.Context())
		for i := range 2 {
			err := n.ApplyTombstone(h, record.Record{PV: "pvc-u", ClaimUID: "u"}, plan.Verdict{Action: action})
			if did := n.did(); err != nil || did != want {
				t.Errorf("%s: %v, did %q the %s time, want %q", action, err, did, fmt.Sprint(i+1), want)
			}
		}
		n.diskErr = errors.New("i/o error")
		if err := n.ApplyTombstone(h, record.Record{PV: "pvc-u"}, plan.Verdict{Action: action}); !errors.Is(err, n.diskErr) || n.did() != "" {
			t.Errorf("%s: the disk fails: %v", action, err)
		}
	}
}

// What a process knows is given to another one, with how long ago it was.
func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, other := newNode(), newNode()
		n.release()
		h, _ := n.Disk.Open(t.Context())
		if _, err := n.Detach(t.Context(), h, n.object, deleted); err != nil {
			t.Fatal(err)
		}
		if got := n.Memory(); !maps.Equal(got, map[string]bool{"v": false}) {
			t.Errorf("right after it: %v", got)
		}
		time.Sleep(plan.HelpAfter) // of the bubble's clock
		known := n.Memory()
		other.Remember(map[string]bool{"another": false})
		other.Remember(known)
		if got := other.Memory(); !maps.Equal(got, map[string]bool{"v": true}) {
			t.Errorf("remembered: %v", got)
		}
	})
}
