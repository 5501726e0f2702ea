package controllers

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestUnpublishedIsRemembered(t *testing.T) {
	var f inFlight
	f.made("a", "fast")
	f.made("b", "fast")
	f.published("b")
	if pool := f.forget("a"); pool != "fast" {
		t.Errorf("a left a directory in %q", pool)
	}
	if pool := f.forget("b"); pool != "" {
		t.Errorf("b is published, yet left one in %q", pool)
	}
	if len(f.claims) != 0 {
		t.Errorf("%d entries are left for claims that are gone", len(f.claims))
	}
}

// A claim that was published is not provisioned again while the watch has not brought its volume,
// and its record is left to the worker that has it.
func TestPublishedAwaitsTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f inFlight
		if f.awaited("a") != 0 || f.busy("a") {
			t.Error("nothing was done for a, yet it is awaited")
		}
		f.made("a", "fast")
		if f.awaited("a") != 0 || !f.busy("a") {
			t.Error("a is being provisioned: busy, and not awaited")
		}
		f.published("a")
		if wait := f.awaited("a"); wait <= 0 || wait > lag || !f.busy("a") {
			t.Errorf("a was published just now, and is awaited for %s", wait)
		}
		time.Sleep(lag) // of the bubble's clock
		if f.awaited("a") != 0 || f.busy("a") {
			t.Error("the watch had its time")
		}
		f.published("a")
		f.forget("a")
		if f.busy("a") {
			t.Error("a is gone")
		}
	})
}

// The age of a claim's node counts from when that node was first seen on it, and its backlog is
// asked for once.
func TestChosenNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f inFlight
		asked := 0
		arrive := func() time.Duration { asked++; return time.Minute }
		for i, step := range []struct {
			node string
			age  time.Duration
		}{{"", 0}, {"", time.Second}, {"node-a", 0}, {"node-a", time.Second}, {"node-b", 0}} {
			if age := f.chosen("u", step.node); age != step.age {
				t.Errorf("step %d: %q is chosen since %s, want %s", i, step.node, age, step.age)
			}
			if backlog := f.backlog("u", arrive); backlog != time.Minute {
				t.Errorf("step %d: a backlog of %s", i, backlog)
			}
			time.Sleep(time.Second)
		}
		if asked != 3 {
			t.Errorf("the backlog was asked for %d times, want once for each node", asked)
		}
		if took := f.published("u"); took != 5*time.Second {
			t.Errorf("published %s after the claim came, want 5s", took)
		}
	})
}
