package plan

import (
	"hash/fnv"
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

// What any node can do and one of them should. A span is how long the others may need to see on a
// busy API server what one node did.
const (
	publishSpan   = 250 * time.Millisecond  // an Immediate claim's volume object: a pod may wait for it
	removeAfter   = 500 * time.Millisecond  // a released volume object, while the nodes remove their directories
	removeSpan    = 1200 * time.Millisecond // on top of that: no pod waits, and all nodes are busy
	takeOverAfter = 20 * time.Second        // a claim whose selected node does nothing
)

// HelpAfter is how long a node that began to let a volume object go is left alone with it.
const HelpAfter = 10 * time.Second

// StaggerDelay is how long this node leaves work on an object to the other nodes, where each can do
// it and one should. It follows from the object's UID and the node's name alone, so that nodes need
// no messages to agree.
//
// The delays are spread exponentially, as receivers of a multicast spread their feedback (RFC
// 5401): whatever the number of nodes, about one has no delay, and with each further span there are
// e times as many, up to all of them after span*ln(nodes). So one of them is early, also where few
// of the nodes take part, and few others begin within a span; with evenly spread delays either the
// first would be late or many would begin at once.
func StaggerDelay(uid, node string, nodes int, span time.Duration) time.Duration {
	if nodes < 2 {
		return 0
	}
	return time.Duration(max(0, math.Log(float64(nodes))+math.Log(hashFraction(uid, node))) * float64(span))
}

// hashFraction is a rendezvous hash of object and node as a number above 0 and up to 1, evenly
// spread over the nodes. FNV alone leaves the last bytes of its input in the low bits, so they are
// mixed once more (the finalizer of MurmurHash3).
func hashFraction(uid, node string) float64 {
	h := fnv.New64a()
	h.Write([]byte(uid))
	h.Write([]byte{0})
	h.Write([]byte(node))
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return (float64(x>>11) + 1) / (1 << 53)
}

// RemovalDelay is how long after it was released a volume object of scope every-node is left to be
// removed by other nodes. It is never removed at once: meanwhile the others see that it is
// released, which is cheaper for them than to find it gone.
func RemovalDelay(uid, node string, nodes int) time.Duration {
	if nodes < 2 {
		return 0
	}
	return removeAfter + StaggerDelay(uid, node, nodes, removeSpan)
}
