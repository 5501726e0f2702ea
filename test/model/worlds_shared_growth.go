package model

import "slices"

// sharedGrowing are worlds of two nodes with a shared pool, in which a claim requests more and
// another daemon takes over.
var sharedGrowing = []world{
	{name: "shared-grown", names: 1, claims: 1, shared: 1, room: 3, steady: true, opening: boundInShared, left: [budgets]uint8{elections: 2, sizes: 2, switches: 1}},
	{name: "shared-grown-killed", names: 1, claims: 1, shared: 1, room: 3, steady: true, opening: growingInShared, left: [budgets]uint8{elections: 2, sizes: 2, kills: 1}},
	{name: "shared-grown-stopped", names: 1, claims: 1, shared: 1, room: 3, steady: true, opening: stoppedInGrowth, left: [budgets]uint8{elections: 2, sizes: 2, stops: 1, switches: 2}},
	{name: "shared-last-space", names: 2, claims: 1, shared: 2, room: 2, steady: true, opening: boundInShared, left: [budgets]uint8{elections: 2, sizes: 1}},
}

// boundInShared: the daemon of the first node leads, and a claim in the shared pool has its volume.
var boundInShared = []string{
	"claim c0 is made", "the daemon looks after the lease, which it has not heard of for long",
	"the daemon takes up the claim of pvc-c0-1", "the daemon calls List of pool q", "the daemon calls Create of pvc-c0-1",
	"the daemon creates volume object pvc-c0-1", "kube-controller-manager binds pvc-c0-1", "five seconds pass",
}

// growingInShared: the claim requests more, and the daemon is about to write the size in its
// record.
var growingInShared = slices.Concat(boundInShared, []string{
	"people request more of c0", "the daemon takes up the claim of pvc-c0-1", "the daemon calls Lookup of pvc-c0-1", "the daemon reads claim c0",
	"the daemon reads volume object pvc-c0-1", "the daemon calls Lookup of pvc-c0-1", "the daemon writes the status of the claim of pvc-c0-1", "the daemon reads the lease",
})

// stoppedInGrowth: that daemon is stopped before its record has the name, and the other one leads,
// when the claim requests still more.
var stoppedInGrowth = slices.Concat(growingInShared, []string{
	`the daemon calls Resize of pvc-c0-1, and is stopped after the step "record durable"`,
	"the daemon of n1 hears of the lease", "the daemon of n1 looks after the lease, which it has not heard of for long",
	"people request more of c0",
})
