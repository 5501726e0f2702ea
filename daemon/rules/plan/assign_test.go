package plan

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// contest is a claim that some nodes may take, with what each of them has free.
type contest struct {
	nodes int // of the cluster
	free  []uint64
	taken []int

	backlog time.Duration
}

// turns are the nodes' turns for one claim.
func (c contest) turns(uid int) []time.Duration {
	all := make([]time.Duration, len(c.free))
	f := ready()
	immediate(&f)
	f.Claim.UID = types.UID(fmt.Sprint("uid-", uid))
	for n := range all {
		f.Node, f.Nodes, f.Room.Free, f.Backlog = fmt.Sprint("node-", n), c.nodes, c.free[n], c.backlog
		if c.taken != nil {
			f.Taken = c.taken[n]
		}
		all[n] = assignDelay(f)
	}
	return all
}

func equal(nodes int, free uint64) []uint64 { return slices.Repeat([]uint64{free}, nodes) }

// How many nodes try a claim before they can have seen that the first one took it, and how long it
// waits, also where few of the nodes have a pool or a daemon that runs.
func TestAssignDelay(t *testing.T) {
	const seen, claims, room = 20 * time.Millisecond, 400, 100 << 30
	base := spaceDelay(room, 0, assignSpacing)
	for _, c := range []struct {
		nodes, taking int
		writes        float64       // at most, at the mean
		mean, longest time.Duration // on top of what the free space costs
	}{
		{1, 1, 1, -base, -base},
		{2, 2, 1.15, 300 * time.Millisecond, 3 * time.Second},
		{3, 3, 1.15, 300 * time.Millisecond, 3 * time.Second},
		{100, 100, 1.15, 300 * time.Millisecond, 3 * time.Second},
		{100, 50, 1.15, 500 * time.Millisecond, 3 * time.Second},
		{100, 3, 1.2, 2300 * time.Millisecond, 4 * time.Second},
		{100, 1, 1, 3 * time.Second, 4 * time.Second},
		{5000, 1, 1, 6 * time.Second, 7 * time.Second},
	} {
		tries, sum, longest := 0, time.Duration(0), time.Duration(0)
		for uid := range claims {
			all := contest{nodes: c.nodes, free: equal(c.taking, room)}.turns(uid)
			first := slices.Min(all)
			sum, longest = sum+first, max(longest, first)
			for _, turn := range all {
				if turn <= first+seen {
					tries++
				}
			}
		}
		writes, mean := float64(tries)/claims, sum/claims-base
		t.Logf("%d of %d nodes: %.2f writes, the first after %s, %s at most", c.taking, c.nodes, writes, mean+base, longest)
		if writes > c.writes || mean > c.mean || longest-base > c.longest {
			t.Errorf("%d of %d nodes: %.2f writes, the first after %s, %s at most; want %.2f, %s, %s",
				c.taking, c.nodes, writes, mean, longest-base, c.writes, c.mean, c.longest)
		}
	}
}

// Of three claims for each of 100 equal nodes no node takes more than three times its share,
// whether they come one after the other or at once.
func TestTakeEvenly(t *testing.T) {
	for round := range 40 {
		c := contest{nodes: 100, free: equal(100, 50<<30), taken: make([]int, 100)}
		for uid := range 300 {
			if round%2 == 1 {
				c.backlog = min(time.Duration(uid)*AssignInterval(100), MaxBacklog)
			}
			all := c.turns(1000*round + uid)
			c.taken[slices.Index(all, slices.Min(all))]++
		}
		if most := slices.Max(c.taken); most > 9 {
			t.Errorf("round %d: one node takes %d of 300", round, most)
		}
	}
}

// Nodes with more room take more: twice the room, about three claims where the other takes two.
func TestTakeFollowsFreeSpace(t *testing.T) {
	c := contest{nodes: 20, free: equal(20, 1<<40)}
	c.free[0], c.free[1] = 1<<39, 1<<36
	got := make([]float64, 20)
	const claims = 5000
	for uid := range claims {
		all := c.turns(uid)
		got[slices.Index(all, slices.Min(all))] += 20. / claims
	}
	t.Logf("half the room: %.2f of an even share; a sixteenth: %.2f", got[0], got[1])
	if got[0] < 0.5 || got[0] > 0.8 || got[1] > 0.35 {
		t.Errorf("half the room: %.2f of an even share, want 0.5 to 0.8; a sixteenth: %.2f, want at most 0.35", got[0], got[1])
	}
}

// A turn does not depend on when it is asked for, and never ends in the past or too late, whatever
// the facts are.
func TestAssignDelayIsBounded(t *testing.T) {
	f := ready()
	immediate(&f)
	for i := range 10000 {
		f.Nodes, f.Node = 2+rand.IntN(5000), fmt.Sprint("node-", i)
		f.Room.Free, f.Taken = rand.Uint64()>>rand.IntN(64), rand.IntN(1000)
		first := assignDelay(f)
		if again := assignDelay(f); again != first || first < 0 || first > 15*time.Second {
			t.Fatalf("%s, then %s, with %d of %d", first, again, f.Room.Free, f.Nodes)
		}
	}
	f.Room.Free, f.Backlog, f.Lag = math.MaxUint64, MaxBacklog, 0
	if got := assignDelay(f); got < MaxBacklog {
		t.Errorf("a delay of %s while claims of %s wait", got, MaxBacklog)
	}
}

// After a node that does nothing the others look one after the other, and none of them much later
// than the rest.
func TestTakeOverDelay(t *testing.T) {
	for _, nodes := range []int{2, 3, 100, 5000} {
		f, first, last := ready(), time.Hour, time.Duration(0)
		for n := range nodes {
			f.Node, f.Nodes = fmt.Sprint("node-", n), nodes
			turn := f.takeOverDelay()
			first, last = min(first, turn), max(last, turn)
		}
		t.Logf("%d nodes: the first after %s, the last after %s", nodes, first, last)
		if first < silentAfter || first > silentAfter+5*silentSpan || last > 7*time.Minute {
			t.Errorf("%d nodes: the first after %s, the last after %s", nodes, first, last)
		}
	}
}
