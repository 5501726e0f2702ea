package model

// Tombstones are kept for a while, and so many of each namespace and class (kube.TombstoneTTL): a
// node that was away for longer finds none.

// tombCollected: what a node has then it keeps, and reports it.
func tombCollected(_ *worker, s *state, cell int) bool {
	if !s.api.tombs[cell].exists || !s.spend(collections) {
		return false
	}
	s.api.tombs[cell], s.collected[cell] = tomb{}, true
	return true
}

// forgotten are worlds of two nodes with a pool of scope every-node, whose tombstones go.
var forgotten = []world{
	{name: "every-collected", names: 1, claims: 1, every: 1, opening: releasedEverywhere, left: [budgets]uint8{collections: 1, departures: 1, kills: 1}},
	{name: "every-collected-killed", names: 1, claims: 1, every: 1, opening: releasedEverywhere, left: [budgets]uint8{collections: 1, kills: 1}},
	{name: "every-collected-policies", names: 1, claims: 1, every: 1, opening: releasedEverywhere, left: [budgets]uint8{collections: 1, policies: 1, deletions: 1}},
	{name: "every-collected-restored", names: 1, claims: 1, every: 1, left: [budgets]uint8{collections: 1, restores: 1}},
	{name: "every-collected-archived", names: 1, claims: 1, every: 1, archive: true, opening: releasedEverywhere, left: [budgets]uint8{collections: 1, departures: 1, policies: 1}},
}

// releasedEverywhere: pods wrote to a volume on both nodes, and its claim is gone.
var releasedEverywhere = []string{
	"claim c0 is made", "the daemon takes up the claim of pvc-c0-1", "the daemon calls List of pool r", "the daemon calls Create of pvc-c0-1",
	"the daemon creates volume object pvc-c0-1", "kube-controller-manager binds pvc-c0-1", "a pod writes to pvc-c0-1",
	"the daemon of n1 takes up volume pvc-c0-1", "the daemon of n1 calls List of pool r", "the daemon of n1 calls Lookup of pvc-c0-1",
	"the daemon of n1 calls Create of pvc-c0-1", "a pod on the other node writes to pvc-c0-1", "five seconds pass",
	"claim c0 is deleted", "kube-controller-manager releases pvc-c0-1",
}
