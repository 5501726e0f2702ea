package plan

import (
	"math"
	"time"
)

// When a node tries to take an Immediate claim of scope node. The first write wins, and each
// further one is a conflict that costs the API server as much, so the nodes try one after the
// other.
const (
	// assignSpacing is the mean time between the first node's attempt and the second one's. What
	// the first one wrote has to reach the others within it.
	assignSpacing = 200 * time.Millisecond
	// assignSpacingBusy is the longest that assignSpacing becomes because many claims wait: watches
	// lag then.
	assignSpacingBusy = 2 * time.Second
	// delayPerHalving is how much later a node tries for each halving of its free space. A node
	// that is alone with half of the others' room then takes two claims where each of them takes
	// three.
	delayPerHalving = 75 * time.Millisecond
	// mostSpace is the free space above which more makes no delay shorter.
	mostSpace = 16 << 40
	// evenRanks is the rank up to which delays are evenly spaced. From there the delay grows with
	// the logarithm of the rank, so that where few of the nodes can take a claim it does not wait
	// for long.
	evenRanks = 3
)

// assignDelay is how long after it came an undecided claim is left to other nodes.
//
// A node does not know the others' hashes, but the rank of its own can be estimated: of n
// exponential variates with mean n the k-th smallest is k on average. So the delay that follows
// from the own variate alone, which is a rendezvous hash of claim and node, is that of the node's
// rank, and nodes need not talk. A node whose daemon is dead does not try, and the next one does.
func assignDelay(f ClaimFacts) time.Duration {
	if !f.otherNodes() {
		return 0
	}
	span := min(assignSpacing+f.Backlog/4, assignSpacingBusy) + f.Lag
	rank := -math.Log(hashFraction(string(f.Claim.UID), f.Node)) * float64(f.Nodes)
	return f.Backlog + spaceDelay(f.Room.Free, f.Taken, span) + spaced(rank, span)
}

// spaceDelay lets nodes with more room go first. What was taken lately counts as if it had divided
// the room: data that is not there yet does not show in the free space. Where delays are wide apart
// because many claims wait, so is that, or a node that took many would still be first as often as
// others.
func spaceDelay(free uint64, taken int, span time.Duration) time.Duration {
	wider := float64(min(max(span, assignSpacing), assignSpacingBusy)) / float64(assignSpacing)
	halvings := math.Log2(mostSpace/float64(max(free, 1))) + wider*math.Log2(float64(1+taken))
	return time.Duration(max(0, halvings) * float64(delayPerHalving))
}

// spaced is the delay of a rank: evenly spaced at first, then logarithmically.
func spaced(rank float64, span time.Duration) time.Duration {
	if rank > evenRanks {
		rank = evenRanks * (1 + math.Log(rank/evenRanks))
	}
	return time.Duration(rank * float64(span))
}

// AssignInterval is how long one Immediate claim keeps the API server busy: each of the claim's
// five or so changes goes to the watch of each node's daemon, and a server with few processors
// sends some 10,000 a second.
func AssignInterval(nodes int) time.Duration {
	if nodes < 2 {
		return 0
	}
	return min(time.Duration(nodes)*500*time.Microsecond, 50*time.Millisecond)
}

// MaxBacklog is the longest Backlog, however many claims came.
const MaxBacklog = 15 * time.Second

// LagPerClaim is how long a claim waits behind each other one that this node is about to take.
const LagPerClaim = 50 * time.Millisecond

// Contended reports whether any node may take the claim.
func Contended(f ClaimFacts) bool {
	return f.Class != nil && !WaitsForConsumer(f.Class) && f.chosen() == "" && f.Refusal == nil && !f.Pool.OfAllNodes() && f.otherNodes()
}
