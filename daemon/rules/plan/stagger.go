package plan

import (
	"hash/fnv"
	"math"
	"time"
)

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
