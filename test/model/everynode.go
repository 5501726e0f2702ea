package model

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// A volume of scope every-node has a part on each node: a directory on that node's own filesystem.

// storeOf is the number of a pool's filesystem on a node.
func storeOf(pool, node int) int {
	if pool == everyPool {
		return pool + node
	}
	return pool
}

// parts is how many parts a cell has.
func (s *state) parts(cell int) int {
	if s.poolOf(cell) == everyPool {
		return nodes
	}
	return 1
}

// part is what a node's filesystem has of a cell.
func (w *worker) part(s *state, node, cell int) onFile {
	on := w.image(s, storeOf(s.poolOf(cell), node)).cells[cell]
	if s.poolOf(cell) == everyPool {
		on.node = node
	}
	on.away = s.poolOf(cell) == int(s.spare.pool) && s.exchanges() && w.tree.disks.images.value(s.spare.image).cells[cell].whole()
	return on
}

// tomb is a tombstone, which other nodes find.
type tomb struct {
	exists bool
	retain bool // the data stays
}

// bury is Client.WriteTombstone (daemon/kube) and what the API server does with its requests. It
// reports whether it was written.
func (e *etcd) bury(cell int, retain bool) (first bool) {
	if was := e.tombs[cell]; was.exists && (was.retain || !retain) {
		return false
	}
	e.tombs[cell] = tomb{true, retain}
	return true
}

// WriteTombstone is part of controllers.API.
func (s server) WriteTombstone(_ context.Context, t plan.Tombstone) (first bool, err error) {
	a, err := s.ask(op{kind: writeTomb, at: numberOf(t.PV), with: object{retain: t.Data == plan.Retain}})
	return a.yes, err
}

// ReadTombstone is part of controllers.API.
func (s server) ReadTombstone(_ context.Context, pv string) (*plan.Tombstone, error) {
	cell := numberOf(pv)
	a, err := s.ask(op{kind: readTomb, at: cell})
	if err != nil || !a.yes {
		return nil, err
	}
	t := &plan.Tombstone{PV: pv, ClaimUID: uidOf(cell), Data: plan.Delete}
	if a.volume.retain {
		t.Data = plan.Retain
	}
	return t, nil
}

// RemoveVolume is Client.RemoveVolume (daemon/kube).
func (s server) RemoveVolume(ctx context.Context, pv *corev1.PersistentVolume) error {
	now, err := s.ReleaseFinalizer(ctx, pv)
	if err != nil || now == nil {
		return err
	}
	return s.DeleteVolume(ctx, now)
}

// decides notes of which volumes the API server told a daemon, in its present work, that the data
// is to go: the object is released with policy Delete and its claim is gone, or its tombstone says
// so.
func (s *state) decides(node int, o op, r response) {
	going, cell := &s.daemons[node].going, o.at
	switch o.kind {
	case getVolume:
		*going &^= 1 << cell
		if v := r.volume; s.poolOf(cell) == everyPool && v.exists && v.phase == released && !v.retain {
			*going |= 1 << cell
		}
	case readTomb:
		if r.yes && !r.volume.retain && !s.kept[cell] {
			*going |= 1 << cell
		}
	case getClaim:
		if r.claim.exists {
			*going &^= 1 << cellOf(o.at, r.claim)
		}
	}
}

// keeps notes whether an object was let go with policy Retain, or with Delete by a daemon. What
// people change later no daemon is told.
func (s *state) keeps(cell int, before, now object, by int) {
	s.off[cell] = !now.finalizer && (before.finalizer && !before.retain && by != others || s.off[cell])
	s.kept[cell] = !now.finalizer && (before.finalizer && before.retain || s.kept[cell])
}

// partsWork: beside volumesWork there is something to do about a node's part.
func partsWork(v object, on onFile) bool {
	if !v.exists {
		return on.recorded
	}
	return on.unnoted || !on.recorded
}

// making reports whether a node's part of a volume is not made yet.
func (s *state) making(on onFile, cell int) bool {
	return s.poolOf(cell) == everyPool && on.place != emptying
}

// unwanted reports whether a recorded directory that has neither object nor claim is to go. Of
// scope every-node a tombstone says so, also one that was not written, or that there never was an
// object.
func (s *state) unwanted(on onFile, cell int) bool {
	if s.poolOf(cell) == everyPool {
		return on.unnoted && on.data == "" || s.off[cell] && !s.collected[cell] || s.api.tombs[cell] == tomb{exists: true}
	}
	return on.data == "" || s.off[cell] && s.consent[0][cell] && !s.spare.made // on which of two copies it went, nothing tells
}

// otherPodWrites has a pod write to the part of the other node.
func otherPodWrites(w *worker, s *state, cell int) bool {
	return s.poolOf(cell) == everyPool && w.podWrites(s, 1, cell)
}

// detached reports whether a daemon took its part of a volume away and remembers that.
func detached(m controllers.Memory, cell int) bool {
	_, is := m.Detached["pv-"+uidOf(cell)]
	return is
}

// longDetached is what a daemon knows of that after a while.
func longDetached(m controllers.Memory) map[string]bool {
	long := map[string]bool{}
	for uid := range m.Detached {
		long[uid] = true
	}
	return long
}

// everyNode are worlds of two nodes with a pool of scope every-node.
var everyNode = []world{
	{name: "every", every: 1, left: often{switches: 1}},
	{name: "every-killed", every: 1, left: often{kills: 1}},
	{name: "every-policies", every: 1, left: often{policies: 1, deletions: 1}},
	{name: "every-gone", tried: 50_000, every: 1, left: often{departures: 1, policies: 1}},
	{name: "every-restored", tried: 60_000, every: 1, left: often{restores: 1}},
	{name: "every-lost", tried: 40_000, every: 1, left: often{losses: 1, breaks: 1}},
	{name: "every-archived", tried: 40_000, every: 1, archive: true,
		left: often{restores: 1, policies: 1}},
	{name: "every-halfway", tried: 40_000, every: 1, left: often{kills: 1, restores: 1}},
	{name: "every-again", tried: 40_000, claims: 2, every: 1, left: often{departures: 1}},
}

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
	{name: "every-collected", tried: 20_000, every: 1, opening: releasedEverywhere,
		left: often{collections: 1, departures: 1, kills: 1}},
	{name: "every-collected-killed", every: 1, opening: releasedEverywhere,
		left: often{collections: 1, kills: 1}},
	{name: "every-collected-policies", tried: 20_000, every: 1, opening: releasedEverywhere,
		left: often{collections: 1, policies: 1, deletions: 1}},
	{name: "every-collected-restored", tried: 15_000, every: 1,
		left: often{collections: 1, restores: 1}},
	{name: "every-collected-archived", tried: 15_000, every: 1, archive: true, opening: releasedEverywhere,
		left: often{collections: 1, departures: 1, policies: 1}},
}

// releasedEverywhere: pods wrote to a volume on both nodes, and its claim is gone.
var releasedEverywhere = []string{
	"claim c0 is made", "the daemon takes up the claim of pvc-c0-1", "the daemon calls List of pool r", "the daemon calls Create of pvc-c0-1",
	"the daemon creates volume object pvc-c0-1", "kube-controller-manager binds pvc-c0-1", "a pod writes to pvc-c0-1",
	"the daemon of n1 takes up volume pvc-c0-1", "the daemon of n1 calls List of pool r", "the daemon of n1 calls Lookup of pvc-c0-1",
	"the daemon of n1 calls Create of pvc-c0-1", "a pod on the other node writes to pvc-c0-1", "five seconds pass",
	"claim c0 is deleted", "kube-controller-manager releases pvc-c0-1",
}
