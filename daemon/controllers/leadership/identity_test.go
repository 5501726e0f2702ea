package leadership

import (
	"strings"
	"testing"
)

// The status prints the holder of a lease, in which any program that may write leases may have
// written anything. Only a node's name is taken from it.
func TestNodeOf(t *testing.T) {
	for holder, want := range map[string]string{
		"node-a_0a1b2c3d": "node-a", "node-a.example_0a1b2c3d": "node-a.example",
		"": "", "node-a": "", "_0a1b2c3d": "", "Node A_0a1b2c3d": "", "\x1b[2J_0a1b2c3d": "", "a_b_c": "",
		strings.Repeat("a", 254) + "_0a1b2c3d": "",
	} {
		if got := NodeOf(holder); got != want {
			t.Errorf("%q: %q, want %q", holder, got, want)
		}
	}
}

// A daemon that starts again is the same holder, and one with another node's name is not.
func TestIdentity(t *testing.T) {
	a := Identity("node-a")
	if NodeOf(a) != "node-a" || a != Identity("node-a") || a == Identity("node-b") {
		t.Errorf("node-a is %s, then %s; node-b is %s", a, Identity("node-a"), Identity("node-b"))
	}
	// It is the value of a Lease's holderIdentity, and of no label: 253 letters of a node's name
	// are allowed.
	if long := strings.Repeat("a", 253); NodeOf(Identity(long)) != long {
		t.Errorf("a long node name becomes %q", NodeOf(Identity(long)))
	}
}

// The host ID is a part of a file's name, and tells nodes apart.
func TestHostID(t *testing.T) {
	a := HostID("node-a")
	if len(a) != 8 || strings.Trim(a, "0123456789abcdef") != "" || a != HostID("node-a") || a == HostID("node-b") {
		t.Errorf("node-a is %q, node-b %q", a, HostID("node-b"))
	}
}
