package model

import "slices"

// often is how often each kind of event may happen.
type often = [budgets]uint8

// world is what may happen in one exploration, and how often.
type world struct {
	name      string
	tried     int // states that its test explores at most, 0: all
	left      often
	claims    int        // of each name, 0: one
	names     int        // 0: one
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
	pods      bool       // the claims are those of two pods, for which the scheduler chooses the node
	alone     bool       // the first node's configuration has scope node for the shared pool when it begins
}

// first is the state in which a world begins: the daemon runs, and there is nothing else.
func (w world) first() state {
	w.names, w.claims = max(w.names, 1), max(w.claims, 1)
	s := state{left: w.left, names: uint8(w.names), clones: w.clones, unasked: w.unasked, snapshots: w.snapshots, twice: w.twice, spare: spare{kind: w.spare}}
	if w.shared > 0 && w.spare != none {
		s.spare.pool = sharedPool
	}
	s.mounted[0][nodePool], s.api.pods = true, waitingPods{w.pods, w.pods}
	s.scoping = w.left[scopings] > 0
	for node := range s.daemons {
		d := &s.daemons[node]
		d.node, d.exists, d.archive, d.room = uint8(node), node == 0 || w.twice || w.shared+w.every > 0, w.archive, w.room
		d.steady, d.peer, d.single = w.steady, w.peer, w.alone && node == 0
		d.pods = w.pods
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
var worlds = slices.Concat(oneNode, growing, cloned, snapshotted, keepings, adopting, swapping, twoNodes, scoped, sharedGrowing, everyNode, forgotten, latenesses,
	podWorlds, largest)

// oneNode are worlds of one node and its pool.
var oneNode = []world{
	{name: "killed", left: often{kills: 2, deletions: 1, policies: 1}},
	{name: "forced", left: often{kills: 1, deletions: 1, policies: 1, forced: 1, unbinding: 1}},
	{name: "labels", tried: 40_000, left: often{labels: 2, kills: 1, policies: 1, deletions: 1}},
	{name: "labels-losses", tried: 40_000, left: often{labels: 2, losses: 1, restores: 1}},
	{name: "losses", left: often{kills: 1, losses: 2, policies: 1, deletions: 1, unmounts: 1}},
	{name: "restored", left: often{kills: 1, restores: 1, policies: 1}},
	{name: "watches", left: often{restores: 1, breaks: 1, losses: 1}},
	{name: "archived", archive: true, left: often{kills: 1, restores: 1, policies: 1, configs: 1}},
	{name: "renamed", left: often{kills: 1, renames: 2, policies: 1, deletions: 1}},
	{name: "pattern", tried: 50_000, claims: 2, left: often{kills: 1, patterns: 2}},
	{name: "cluster", tried: 50_000, left: often{kills: 1, clusters: 2, policies: 1, deletions: 1}},
	{name: "people", people: true, left: often{kills: 1, restores: 1, patterns: 1, deletions: 1}},
	{name: "stranger", tried: 60_000,
		left: often{strangers: 1, kills: 1, restores: 1, deletions: 1}},
	{name: "again", tried: 100_000, claims: 2, left: often{kills: 1, losses: 1}},
	{name: "two", tried: 100_000, names: 2, left: often{kills: 1, deletions: 1}},
}

// largest are the worlds that no time is enough for.
var largest = []world{
	{name: "shared-all", tried: 10_000, names: 2, shared: 2, left: often{
		elections: 3, switches: 2, stops: 1, standbys: 1, kills: 1, restores: 1, policies: 1, deletions: 1, departures: 1, losses: 1, unmounts: 1, breaks: 1,
	}},
	{name: "all", tried: 10_000, names: 2, claims: 2, left: often{
		kills: 2, restores: 1, policies: 1, deletions: 1, forced: 1, unbinding: 1, breaks: 1, losses: 2, unmounts: 1, configs: 1,
	}},
}

// adopting are worlds in which another provisioner made a volume, which is adopted and given up.
var adopting = []world{
	{name: "adopted", tried: 30_000, peer: true, opening: madeByPeer,
		left: often{adoptions: 2, undoings: 1, kills: 1}},
	{name: "adopted-changed", tried: 20_000, peer: true, opening: madeByPeer, left: often{
		adoptions: 1, undoings: 1, peers: 1, policies: 1, deletions: 1,
	}},
	{name: "adopted-restored", tried: 40_000, peer: true, opening: madeByPeer,
		left: often{adoptions: 1, undoings: 1, restores: 1, kills: 1}},
	{name: "adopted-lost", tried: 20_000, peer: true, opening: madeByPeer,
		left: often{adoptions: 2, undoings: 1, losses: 2, unmounts: 1}},
	{name: "adopted-archived", tried: 20_000, peer: true, archive: true, opening: madeByPeer, left: often{
		adoptions: 1, undoings: 1, configs: 1, kills: 1, forced: 1,
	}},
}

// madeByPeer: another provisioner made a volume, and a pod wrote to it.
var madeByPeer = []string{
	"claim c0 is made", "the other provisioner makes pvc-c0-1", "kube-controller-manager binds pvc-c0-1", "a pod writes to pvc-c0-1",
}

// cloned are worlds in which one claim is a clone of another one.
var cloned = []world{
	{name: "cloned", names: 2, clones: true, opening: written, left: often{kills: 1}},
	{name: "cloned-again", tried: 8_000, names: 2, claims: 2, clones: true, opening: writtenFirst},
	{name: "cloned-losses", tried: 6_000, names: 2, clones: true, opening: written,
		left: often{losses: 1, deletions: 1, policies: 1}},
	{name: "cloned-restored", tried: 45_000, names: 2, clones: true, opening: written,
		left: often{restores: 1}},
	{name: "cloned-raced", tried: 4_000, names: 2, clones: true, opening: written,
		left: often{workers: 1, deletions: 1}},
}

// written: a claim is bound, and a pod wrote to its volume. writtenFirst is the same where each
// name has two claims.
var written, writtenFirst = writtenTo("pvc-c0-1"), writtenTo("pvc-c0-0")

func writtenTo(pv string) []string {
	return []string{
		"claim c0 is made", "the daemon takes up the claim of " + pv,
		"the daemon calls List of the pool", "the daemon calls Create of " + pv,
		"the daemon creates volume object " + pv, "kube-controller-manager binds " + pv,
		"a pod writes to " + pv, "five seconds pass",
	}
}

// growing are worlds in which claims request more than they have, and pools have room for so many
// units.
var growing = []world{
	{name: "grown", room: 3, steady: true, left: often{sizes: 2, kills: 1, deletions: 1}},
	{name: "grown-losses", room: 3, left: often{sizes: 2, losses: 1, unmounts: 1}},
	{name: "grown-restored", room: 3, left: often{sizes: 1, restores: 1, kills: 1}},
	{name: "last-space", tried: 50_000, names: 2, room: 2, steady: true,
		left: often{sizes: 1, kills: 1}},
	{name: "raced", tried: 15_000, names: 2, room: 3, steady: true, opening: bothBound,
		left: often{workers: 1, sizes: 2}},
}

// bothBound: two claims have their volumes.
var bothBound = []string{
	"claim c0 is made", "claim c1 is made",
	"the daemon takes up the claim of pvc-c0-1", "the daemon calls List of the pool", "the daemon calls Create of pvc-c0-1", "the daemon creates volume object pvc-c0-1",
	"the daemon takes up the claim of pvc-c1-1", "the daemon calls Create of pvc-c1-1", "the daemon creates volume object pvc-c1-1",
	"kube-controller-manager binds pvc-c0-1", "kube-controller-manager binds pvc-c1-1", "five seconds pass",
}

// keepings are worlds in which the daemon acts as soon as a node was chosen, and volumes of others
// are kept for claims.
var keepings = []world{
	{name: "kept", unasked: true, left: often{keeps: 1, kills: 1}},
	{name: "kept-deleted", tried: 20_000, unasked: true,
		left: often{keeps: 2, deletions: 1, policies: 1}},
	{name: "kept-losses", tried: 20_000, unasked: true,
		left: often{keeps: 1, losses: 1, unmounts: 1}},
	{name: "kept-again", tried: 20_000, claims: 2, unasked: true, left: often{keeps: 1}},
	{name: "kept-restored", tried: 20_000, unasked: true, left: often{keeps: 1, restores: 1}},
	{name: "kept-watches", tried: 20_000, unasked: true, left: often{keeps: 2, breaks: 1}},
}

// latenesses are worlds in which the API server serves a request when its daemon has given it up
// and does something else.
var latenesses = []world{
	{name: "late", tried: 6_000, left: often{lates: 1, policies: 1, deletions: 1}},
	{name: "late-killed", tried: 2_000, left: often{lates: 1, deletions: 1, kills: 1}},
	{name: "late-retained", tried: 40_000,
		left: often{lates: 1, deletions: 1, policies: 1, kills: 1}},
	{name: "late-again", tried: 2_000, claims: 2, left: often{lates: 1, kills: 1}},
	{name: "late-grown", tried: 2_000, room: 3, steady: true, left: often{lates: 1, sizes: 2}},
	{name: "late-shared", tried: 2_000, shared: 1, left: often{lates: 1, elections: 2}},
}

// scoped are worlds of two nodes of which each has a configuration that names whether the second
// pool is its own or shared.
var scoped = []world{
	{name: "scope-shared", shared: 1, alone: true,
		left: often{scopings: 1, kills: 1, elections: 2}},
	{name: "scope-alone", shared: 1, left: often{scopings: 2, kills: 2, elections: 1}},
	{name: "scope-taken", tried: 20_000, shared: 1, alone: true,
		left: often{scopings: 2, departures: 1, elections: 2, policies: 1}},
	{name: "scope-restored", tried: 20_000, shared: 1, alone: true,
		left: often{scopings: 1, kills: 1, elections: 1, restores: 1}},
	{name: "scope-deleted", tried: 20_000, shared: 1, alone: true,
		left: often{scopings: 1, kills: 1, elections: 2, deletions: 1, policies: 1}},
}

// twoNodes are worlds of two nodes with a shared pool, of which each has a daemon. A term begins
// when one of them takes the lease: with two terms the work goes from one to the other.
var twoNodes = []world{
	{name: "shared", shared: 1, left: often{elections: 2, switches: 1}},
	{name: "shared-killed", shared: 1, left: often{elections: 2, kills: 1}},
	{name: "shared-policies", shared: 1, left: often{elections: 2, policies: 1}},
	{name: "shared-deleted", shared: 1, left: often{elections: 2, deletions: 1}},
	{name: "shared-stopped", tried: 30_000, shared: 1,
		left: often{elections: 2, switches: 1, stops: 1}},
	{name: "shared-between", tried: 300_000, shared: 1, left: often{elections: 2, switches: 2}},
	{name: "shared-changed", tried: 250_000, shared: 1,
		left: often{elections: 2, switches: 1, policies: 1}},
	{name: "shared-restored", tried: 30_000, shared: 1, left: often{elections: 2, restores: 1}},
	{name: "shared-gone", tried: 30_000, shared: 1, left: often{elections: 2, departures: 1}},
	{name: "shared-archived", tried: 20_000, shared: 1, archive: true,
		left: often{elections: 2, switches: 1}},
	{name: "shared-labels", tried: 20_000, shared: 1, left: often{labels: 2, elections: 2}},
	{name: "shared-beside", tried: 20_000, names: 2, shared: 1, left: often{elections: 2}},
	{name: "shared-unmounted", tried: 20_000, shared: 1,
		left: often{elections: 3, unmounts: 1, losses: 1}},
}

// sharedGrowing are worlds of two nodes with a shared pool, in which a claim requests more and
// another daemon takes over.
var sharedGrowing = []world{
	{name: "shared-grown", tried: 20_000, shared: 1, room: 3, steady: true, opening: boundInShared,
		left: often{elections: 2, sizes: 2, switches: 1}},
	{name: "shared-grown-killed", tried: 20_000, shared: 1, room: 3, steady: true, opening: growingInShared,
		left: often{elections: 2, sizes: 2, kills: 1}},
	{name: "shared-grown-stopped", tried: 40_000, shared: 1, room: 3, steady: true, opening: stoppedInGrowth,
		left: often{elections: 2, sizes: 2, stops: 1, switches: 2}},
	{name: "shared-last-space", tried: 20_000, names: 2, shared: 2, room: 2, steady: true,
		opening: boundInShared,
		left:    often{elections: 2, sizes: 1}},
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

// snapshotted are worlds in which a snapshot is taken of a volume with data, or was, and a claim is
// made from it.
var snapshotted = []world{
	{name: "snapshot", tried: 20_000, names: 2, snapshots: true, opening: written,
		left: often{snapshotsTaken: 1, snapshotEnds: 1, kills: 1}},
	{name: "snapshot-losses", tried: 15_000, names: 2, snapshots: true, opening: written,
		left: often{snapshotsTaken: 1, snapshotEnds: 1, losses: 1, unmounts: 1}},
	{name: "snapshot-source", tried: 15_000, names: 2, snapshots: true, opening: written,
		left: often{snapshotsTaken: 1, deletions: 1, forced: 1, breaks: 1}},
	{name: "snapshot-ends", tried: 20_000, names: 2, snapshots: true, opening: taken,
		left: often{snapshotsTaken: 1, snapshotEnds: 3, kills: 1}},
	{name: "snapshot-raced", tried: 15_000, names: 2, snapshots: true, opening: taken,
		left: often{snapshotsTaken: 1, snapshotEnds: 2, workers: 1}},
	{name: "snapshot-restored", tried: 20_000, names: 2, snapshots: true, opening: taken,
		left: often{snapshotsTaken: 1, snapshotEnds: 1, restores: 1}},
	{name: "snapshot-forced", tried: 20_000, names: 2, snapshots: true, opening: taken,
		left: often{snapshotsTaken: 1, snapshotEnds: 2, forced: 1, breaks: 1}},
	{name: "snapshot-lost", tried: 20_000, names: 2, snapshots: true, opening: taken,
		left: often{snapshotsTaken: 1, snapshotEnds: 2, losses: 1, unmounts: 1}},
}

// taken: a claim is bound, a pod wrote to its volume, and a snapshot of that is ready.
var taken = slices.Concat(written, []string{
	"a snapshot is taken of pvc-c0-1", "the daemon takes up the snapshot's content",
	"the daemon calls Lookup of snapshot-s-0", "the daemon calls Lookup of pvc-c0-1", "the daemon calls List of the pool",
	"the daemon reads volume object pvc-c0-1",
	"the daemon reads the VolumeSnapshot of snapshot-s-0", "the daemon reads claim c0", "the daemon writes the content of snapshot-s-0",
	"the daemon calls Lookup of pvc-c0-1", "the daemon calls Create of snapshot-s-0", "the daemon takes up the snapshot's content",
	"the daemon calls Lookup of snapshot-s-0", "the daemon calls Lookup of pvc-c0-1", "the daemon calls List of the pool",
	"the daemon reads volume object pvc-c0-1",
	"the daemon reads the VolumeSnapshot of snapshot-s-0", "the daemon reads claim c0", "the daemon calls Lookup of snapshot-s-0",
	"the daemon reads the content of snapshot-s-0", "the daemon calls Published of snapshot-s-0", "the daemon writes the content of snapshot-s-0",
})

// swapping are worlds in which another filesystem is mounted in place of the pool's, or the pool's
// on the other node, too.
var swapping = []world{
	{name: "swapped", tried: 15_000, spare: marked, left: often{swaps: 2, kills: 1}},
	{name: "copied-disk", tried: 20_000, spare: copied,
		left: often{clonings: 1, swaps: 1, policies: 1}},
	{name: "copied-disk-killed", tried: 20_000, spare: copied,
		left: often{clonings: 1, swaps: 1, kills: 1}},
	{name: "copied-disk-restored", tried: 20_000, spare: copied,
		left: often{clonings: 1, swaps: 1, restores: 1}},
	{name: "shared-swapped", tried: 20_000, shared: 1, spare: marked,
		left: often{swaps: 2, elections: 2}},
	{name: "shared-copied", tried: 20_000, shared: 1, spare: copied,
		left: often{clonings: 1, swaps: 1, elections: 2}},
	{name: "shared-copied-killed", tried: 20_000, shared: 1, spare: copied,
		left: often{clonings: 1, swaps: 1, kills: 1, elections: 2}},
	{name: "twice", tried: 20_000, twice: true, left: often{unmounts: 1, kills: 1}},
}
