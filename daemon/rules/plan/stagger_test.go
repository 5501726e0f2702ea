package plan

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// The number of nodes that would begin before they can have seen what the first one did, and how
// long all wait for the first: over many objects, for clusters of all sizes, and where only some of
// the nodes take part.
func TestStaggerDelay(t *testing.T) {
	const seen = 30 * time.Millisecond
	for _, c := range []struct {
		nodes, taking int
		early         float64       // at most, at the mean
		wait          time.Duration // at most, at the mean
	}{
		{1, 1, 1, 0},
		{2, 2, 1.6, 200 * time.Millisecond},
		{3, 3, 1.6, 200 * time.Millisecond},
		{50, 50, 1.8, 150 * time.Millisecond},
		{50, 1, 1, 800 * time.Millisecond},
		{50, 5, 1.5, 500 * time.Millisecond},
		{5000, 5000, 1.9, 100 * time.Millisecond},
	} {
		objects := min(2000, 2_000_000/c.taking)
		var began int
		var waited time.Duration
		for o := range objects {
			longest := time.Duration(math.Log(float64(c.nodes)) * float64(publishSpan))
			first, all := longest, make([]time.Duration, c.taking)
			for n := range all {
				all[n] = StaggerDelay(fmt.Sprint("uid-", o), fmt.Sprint("node-", n), c.nodes, publishSpan)
				first = min(first, all[n])
				if all[n] < 0 || all[n] > longest {
					t.Fatalf("a turn of %s", all[n])
				}
			}
			waited += first
			for _, turn := range all {
				if turn < first+seen {
					began++
				}
			}
		}
		early, wait := float64(began)/float64(objects), waited/time.Duration(objects)
		t.Logf("%d of %d nodes: %.2f begin, the first after %s", c.taking, c.nodes, early, wait.Round(time.Millisecond))
		if early > c.early || wait > c.wait {
			t.Errorf("%d of %d nodes: %.2f begin, the first after %s; want at most %.2f, %s", c.taking, c.nodes, early, wait, c.early, c.wait)
		}
	}
}

// A turn is the same whenever and wherever it is asked for, and another one for the next object.
func TestStaggerDelayIsStable(t *testing.T) {
	different := map[time.Duration]bool{}
	for o := range 20 {
		uid := fmt.Sprint("uid-", o)
		a, b := StaggerDelay(uid, "node-a", 50, time.Second), StaggerDelay(uid, "node-a", 50, time.Second)
		if a != b {
			t.Errorf("%s, then %s", a, b)
		}
		different[a] = true
	}
	if len(different) < 10 {
		t.Errorf("20 objects have %d different turns", len(different))
	}
}

func TestRemovalDelay(t *testing.T) {
	if got := RemovalDelay("uid", "node-a", 1); got != 0 {
		t.Errorf("an only node waits %s", got)
	}
	for n := range 50 {
		if got := RemovalDelay("uid", fmt.Sprint(n), 50); got < removeAfter || got > removeAfter+4*removeSpan {
			t.Errorf("a turn of %s", got)
		}
	}
}
