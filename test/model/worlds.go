package model

import "slices"

// world is what may happen in one exploration, and how often.
type world struct {
	name      string
	left      [budgets]uint8
	claims    int // of each name
	names     int
	archive   bool       // on_delete, when it begins
	shared    int        // how many of the names are of claims in the shared pool, which two nodes have then
	every     int        // how many of the others are of claims in the pool of scope every-node, which two nodes have then
	people    bool       // there is a directory of people under a volume's name
	room      uint8      // how many units each pool can promise, 0: any number
	opening   []string   // what happened before it is explored
	clones    bool       // claims with the second name are clones of those with the first one
	steady    bool       // no call to the disk fails
	unasked   bool       // the daemon does not wait until a provisioner is asked for
	snapshots bool       // claims with the second name are made from a snapshot of the first one's volume
	spare     filesystem // the other one that can be mounted in place of the first pool's, or of the shared one's
	twice     bool       // the first pool's disk can be mounted on the other node, too, whose configuration has the pool
	peer      bool       // another provisioner made what is in the first pool
	alone     bool       // the first node's configuration has scope node for the shared pool when it begins
}

// first is the state in which a world begins: the daemon runs, and there is nothing else.
func (w world) first() state {
	s := state{left: w.left, names: uint8(w.names), clones: w.clones, unasked: w.unasked, snapshots: w.snapshots, twice: w.twice, spare: spare{kind: w.spare}}
	if w.shared > 0 && w.spare != none {
		s.spare.pool = sharedPool
	}
	s.mounted[0][nodePool] = true
	s.scoping = w.left[scopings] > 0
	for node := range s.daemons {
		d := &s.daemons[node]
		d.node, d.exists, d.archive, d.room = uint8(node), node == 0 || w.twice || w.shared+w.every > 0, w.archive, w.room
		d.steady, d.peer, d.single = w.steady, w.peer, w.alone && node == 0
		s.mounted[node][sharedPool], s.mounted[node][everyPool] = w.shared > 0, w.every > 0
		if d.exists {
			(*worker)(nil).starts(&s, node)
		}
	}
	if w.people {
		s.people, s.disks[nodePool] = true, takenImage
	}
	for slot := range slots {
		switch {
		case slot < w.shared:
			s.in[slot] = sharedPool
		case slot < w.shared+w.every:
			s.in[slot] = everyPool
		}
		s.used[slot] = uint8(lives)
		if slot < w.names {
			s.used[slot] = uint8(lives - w.claims)
		}
	}
	return s
}

// worlds are what is explored, the small ones first.
var worlds = slices.Concat(oneNode, growing, cloned, snapshotted, keepings, adopting, swapping, twoNodes, scoped, sharedGrowing, everyNode, forgotten, latenesses, largest)

// oneNode are worlds of one node and its pool.
var oneNode = []world{
	{name: "killed", names: 1, claims: 1, left: [budgets]uint8{kills: 2, deletions: 1, policies: 1}},
	{name: "forced", names: 1, claims: 1, left: [budgets]uint8{kills: 1, deletions: 1, policies: 1, forced: 1, unbinding: 1}},
	{name: "labels", names: 1, claims: 1, left: [budgets]uint8{labels: 2, kills: 1, policies: 1, deletions: 1}},
	{name: "labels-losses", names: 1, claims: 1, left: [budgets]uint8{labels: 2, losses: 1, restores: 1}},
	{name: "losses", names: 1, claims: 1, left: [budgets]uint8{kills: 1, losses: 2, policies: 1, deletions: 1, unmounts: 1}},
	{name: "restored", names: 1, claims: 1, left: [budgets]uint8{kills: 1, restores: 1, policies: 1}},
	{name: "watches", names: 1, claims: 1, left: [budgets]uint8{restores: 1, breaks: 1, losses: 1}},
	{name: "archived", names: 1, claims: 1, archive: true, left: [budgets]uint8{kills: 1, restores: 1, policies: 1, configs: 1}},
	{name: "renamed", names: 1, claims: 1, left: [budgets]uint8{kills: 1, renames: 2, policies: 1, deletions: 1}},
	{name: "pattern", names: 1, claims: 2, left: [budgets]uint8{kills: 1, patterns: 2}},
	{name: "cluster", names: 1, claims: 1, left: [budgets]uint8{kills: 1, clusters: 2, policies: 1, deletions: 1}},
	{name: "people", names: 1, claims: 1, people: true, left: [budgets]uint8{kills: 1, restores: 1, patterns: 1, deletions: 1}},
	{name: "stranger", names: 1, claims: 1, left: [budgets]uint8{strangers: 1, kills: 1, restores: 1, deletions: 1}},
	{name: "again", names: 1, claims: 2, left: [budgets]uint8{kills: 1, losses: 1}},
	{name: "two", names: 2, claims: 1, left: [budgets]uint8{kills: 1, deletions: 1}},
}

// largest are the worlds that no time is enough for.
var largest = []world{
	{name: "shared-all", names: 2, claims: 1, shared: 2, left: [budgets]uint8{
		elections: 3, switches: 2, stops: 1, standbys: 1, kills: 1, restores: 1, policies: 1, deletions: 1, departures: 1, losses: 1, unmounts: 1, breaks: 1,
	}},
	{name: "all", names: 2, claims: 2, left: [budgets]uint8{
		kills: 2, restores: 1, policies: 1, deletions: 1, forced: 1, unbinding: 1, breaks: 1, losses: 2, unmounts: 1, configs: 1,
	}},
}
