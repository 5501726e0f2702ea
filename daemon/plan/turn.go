package plan

import (
	"hash/fnv"
	"math"
	"time"
)

// What any node may do and one should do. A span is how long what one node did may take to be seen by
// the others, on a busy API server.
const (
	publishSpan   = 250 * time.Millisecond  // an Immediate claim's volume object: somebody waits for it
	removeAfter   = 500 * time.Millisecond  // a released volume object, while the nodes remove their directories
	removeSpan    = 1200 * time.Millisecond // on top of that: nobody waits, and all nodes are busy
	takeOverAfter = 20 * time.Second        // a claim whose selected node does nothing
)

// HelpAfter is how long a node that began to let a volume object go is left alone with it.
const HelpAfter = 10 * time.Second

// Turn is how long this node leaves to others what one of them should do for an object and any can,
// from the object's UID and the node's name alone, so that nodes agree without talking.
//
// The delays are spread exponentially, as receivers of a multicast spread their answers (RFC 5401):
// whatever the number of nodes, about one has no delay, and with each further span there are e times as
// many, up to all of them after span*ln(nodes). So one of them is early, also where few of the nodes
// take part, and few others begin within a span; with evenly spread delays either the first would be
// late or many would begin at once.
func Turn(uid, node string, nodes int, span time.Duration) time.Duration {
	if nodes < 2 {
		return 0
	}
	return time.Duration(max(0, math.Log(float64(nodes))+math.Log(lot(uid, node))) * float64(span))
}

// lot is a number above 0 and up to 1 that this node drew for the object, evenly spread over the
// nodes. FNV alone leaves the last bytes of its input in the low bits, so they are mixed once more
// (the finalizer of MurmurHash3).
func lot(uid, node string) float64 {
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

// RemovalTurn is how long after it was released a volume object of scope every-node is left to be
// removed by other nodes. It is never removed at once: meanwhile the others see that it is released,
// which is cheaper for them than to find it gone.
func RemovalTurn(uid, node string, nodes int) time.Duration {
	if nodes < 2 {
		return 0
	}
	return removeAfter + Turn(uid, node, nodes, removeSpan)
}
