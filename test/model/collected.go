package main

// Tombstones are kept for a while, and so many of each namespace and class (kube.TombstoneTTL): a node that was away for longer finds none.

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
	{name: "every-collected", names: 1, claims: 1, every: 1, left: [budgets]uint8{collections: 1, departures: 1, kills: 1}},
	{name: "every-collected-policies", names: 1, claims: 1, every: 1, left: [budgets]uint8{collections: 1, policies: 1, deletions: 1}},
	{name: "every-collected-restored", names: 1, claims: 1, every: 1, left: [budgets]uint8{collections: 1, restores: 1}},
	{name: "every-collected-archived", names: 1, claims: 1, every: 1, archive: true, left: [budgets]uint8{collections: 1, departures: 1, policies: 1}},
}
