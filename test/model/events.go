package model

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// event is something that happens beside the daemon. apply reports whether it can happen now, to
// the i-th of its objects, and lets it happen.
type event struct {
	name  string // with the object's name, if it has one
	of    int    // how many objects it can happen to, or perName, perCell
	named func(int) string
	apply func(w *worker, s *state, i int) bool
	ours  bool // it happens by itself: a controller of the cluster does it sooner or later
}

// What an event can happen to, as far as a world has that.
const (
	perName = -1
	perCell = -2
)

// objects is how many objects it can happen to in this world.
func (e event) objects(s *state) int {
	switch e.of {
	case perName:
		return int(s.names)
	case perCell:
		return s.cells()
	}
	return e.of
}

func (e event) about(i int) string {
	if e.named == nil {
		return e.name
	}
	return fmt.Sprintf(e.name, e.named(i))
}

// events are all that can happen beside the daemon's own steps and its death.
var events = []event{
	{"claim %s is made", perName, slotName, claimMade, false},
	{"claim %s is deleted", perName, slotName, claimDeleted, false},
	{"kube-controller-manager binds %s", perCell, nameOf, binds, true},
	{"kube-controller-manager releases %s", perCell, nameOf, releases, true},
	{"pv-protection lets %s go", perCell, nameOf, unprotects, true},
	{"pv-protection keeps %s", perCell, nameOf, protects, true},
	{"a pod writes to %s", perCell, nameOf, podWrites, false},
	{"a pod on the other node writes to %s", perCell, nameOf, otherPodWrites, false},
	{"people delete volume object %s", perCell, nameOf, objectDeleted, false},
	{"people change the policy of %s", perCell, nameOf, policyChanged, false},
	{"people edit the label of %s", perCell, nameOf, labelEdited, false},
	{"people take the finalizers off %s", perCell, nameOf, finalizersForced, false},
	{"people take the claim out of %s", perCell, nameOf, claimTakenOut, false},
	{"etcd is saved", 1, nil, etcdSaved, false},
	{"etcd is restored", 1, nil, etcdRestored, false},
	{"the API server serves a request that was given up", 1, nil, servedLate, true},
	{"the API server writes more than before it was restored", 1, nil, overtaken, true},
	{"the watches%s break", nodes, ofNode, watchesBreak, false},
	{"the watches%s are whole again", nodes, ofNode, watchesHeal, true},
	{"%s is unmounted", mountPoints, mountName, unmounted, false},
	{"%s is mounted", mountPoints, mountName, remounted, true},
	{"the daemon looks at %s", mountPoints, mountName, looked, true},
	{"%s starts", nodes, daemonName, started, true},
	{"node %s goes", nodes, nodeName, nodeGoes, false},
	{"node %s is back", nodes, nodeName, nodeBack, false},
	{"the configuration%s changes on_delete", nodes, ofNode, configured(configs, otherDeletion), false},
	{"the configuration%s changes the pattern of directories", nodes, ofNode,
		configured(patterns, patternOfPaths), false},
	{"the configuration%s names another provisioner", nodes, ofNode, configured(renames, lessNamed), false},
	{"the configuration%s changes the scope of pool q", nodes, ofNode,
		configured(scopings, otherScope), false},
	{"people say that nodes do not share pool q any more", 1, nil, sharedNoMore, false},
	{"people say that pool q is not %s's alone any more", nodes, nodeName, aloneNoMore, false},
	{"%s starts with the alias", nodes, daemonName, aliasSet, true},
	{"the API server is another cluster's", 1, nil, clusterChanged, false},
	{"the API server is the pools' own again", 1, nil, clusterBack, true},
	{"five seconds pass%s", nodes, ofNode, timePasses, true},
	{"the other provisioner makes %s", perCell, nameOf, peerMakes, false},
	{"the other provisioner removes %s", perCell, nameOf, peerRemoves, false},
	{"the pool's disk is copied", 1, nil, diskCopied, false},
	{"another filesystem is mounted as the pool", 1, nil, diskSwapped, false},
	{"the pool's own filesystem is mounted again", 1, nil, diskBack, true},
	{"people request more of %s", perName, slotName, moreRequested, false},
	{"people request less of %s", perName, slotName, lessRequested, false},
	{"a snapshot is taken of %s", perCell, nameOf, snapshotTaken, false},
	{"the snapshot is deleted", 1, nil, snapshotDeleted, false},
	{"people delete the snapshot's content", 1, nil, contentChanged(snapshotEnds, deletedContent), false},
	{"people change the policy of the snapshot's content", 1, nil,
		contentChanged(snapshotEnds, retainedContent), false},
	{"people take the finalizer off the snapshot's content", 1, nil,
		contentChanged(forced, forcedContent), false},
	{"the snapshot-controller deletes what is withdrawn", 1, nil, contentFollows, true},
	{"the tombstone of %s is collected", perCell, nameOf, tombCollected, false},
	{"people keep a volume for each claim %s", perName, slotName, volumeKept(byName), false},
	{"a volume is kept for claim %s by its UID", perName, slotName, volumeKept(byUID), false},
	{"people delete the volume that is kept for %s", perName, slotName, keptDeleted, false},
	{"kube-controller-manager binds claim %s to the volume that is kept for it", perName, slotName, bindsKept, true},
	{"kube-controller-manager asks a provisioner for claim %s", perName, slotName, asksFor, true},
	{"the scheduler chooses the node for claim %s", perName, slotName, nodeChosen, false},
	{"pod %s is deleted", len(waitingPods{}), podName, podDeleted, false},
}

// spend takes one of what is left of a kind of event.
func (s *state) spend(b budget) bool {
	if s.left[b] == 0 {
		return false
	}
	s.left[b]--
	return true
}

func claimMade(_ *worker, s *state, slot int) bool {
	if s.api.claims[slot].exists || s.used[slot] == lives {
		return false
	}
	s.api.claims[slot] = claim{
		exists: true, life: s.used[slot], in: s.in[slot], clone: s.clones && slot == 1,
		restore: s.snapshots && slot == 1, unasked: s.unasked || s.ofPods(), open: s.ofPods(),
	}
	s.used[slot]++
	return true
}

func claimDeleted(_ *worker, s *state, slot int) bool {
	if !s.api.claims[slot].exists || s.ofPods() && !s.spend(ends) {
		return false
	}
	s.api.claims[slot] = claim{}
	return true
}

// binds: the volume names the claim, by its UID (pkg/controller/volume/persistentvolume,
// syncUnboundClaim). What a restored etcd has of one of them is made good.
func binds(_ *worker, s *state, cell int) bool {
	c, exists := s.api.ownClaim(cell)
	v := &s.api.volumes[cell]
	if !exists || !v.exists || !v.ref || c.bound && v.phase == bound || !c.bound && (v.deleting || v.phase == bound) {
		return false
	}
	v.phase, v.version = bound, next(v.version)
	if now := &s.api.claims[cell/lives]; !now.bound {
		now.bound, now.has = true, v.size
	}
	return true
}

// releases: the claim that the volume names is gone, or bound to another one (syncVolume).
func releases(_ *worker, s *state, cell int) bool {
	_, exists := s.api.ownClaim(cell)
	v := &s.api.volumes[cell]
	if exists || !v.exists || !v.ref || v.phase == released {
		return false
	}
	v.phase, v.version = released, next(v.version)
	return true
}

// unprotects: pv-protection lets go what is being deleted and not bound
// (pkg/controller/volume/pvprotection).
func unprotects(_ *worker, s *state, cell int) bool {
	v := s.api.volumes[cell]
	if !v.exists || !v.deleting || !v.protected || v.phase == bound {
		return false
	}
	v.protected, v.version = false, next(v.version)
	s.api.put(cell, v)
	return true
}

// protects: pv-protection keeps each object that is not being deleted.
func protects(_ *worker, s *state, cell int) bool {
	v := &s.api.volumes[cell]
	if !v.exists || v.deleting || v.protected {
		return false
	}
	v.protected, v.version = true, next(v.version)
	return true
}

func podWrites(w *worker, s *state, cell int) bool { return w.podWrites(s, 0, cell) }

// podWrites has a pod write to a volume, on a node if each has a directory of it.
func (w *worker) podWrites(s *state, node, cell int) bool {
	c, exists := s.api.claimOf(cell)
	pool := s.poolOf(cell)
	v, on := s.api.volumes[cell], w.part(s, node, cell)
	wrote := on.place != record.InPool || on.data == uidOf(cell)
	if s.ofPods() || !exists || !c.bound || !v.exists || v.phase != bound ||
		!s.reachable(node, pool) || wrote {
		return false
	}
	w.meanwhile(s, pool, run{wrote: cell})
	f := maps.Clone(w.image(s, storeOf(pool, node)).files)
	name := nameOf(cell)
	if v.pattern {
		name = otherPattern + name
	}
	f[name+"/data"] = uidOf(cell)
	s.disks[storeOf(pool, node)], s.wrote[node][cell] = w.tree.disks.image(f), true
	return true
}

// reachable reports whether pods can reach a pool: on a node, or on any if each has the same.
func (s *state) reachable(node, pool int) bool {
	return s.mounted[node][pool] || pool == sharedPool && s.mounted[1][pool]
}

// changed is the event that people change a volume object.
func changed(b budget, change func(v *object) bool) func(*worker, *state, int) bool {
	return func(_ *worker, s *state, cell int) bool {
		v := s.api.volumes[cell]
		if !v.exists || !change(&v) || !s.spend(b) {
			return false
		}
		v.version = next(v.version)
		s.api.put(cell, v)
		return true
	}
}

var (
	objectDeleted = changed(deletions, func(v *object) bool {
		was := v.deleting
		v.deleting = true
		return !was
	})
	policyChanged    = changed(policies, func(v *object) bool { v.retain = !v.retain; return true })
	finalizersForced = changed(forced, func(v *object) bool {
		had := v.finalizer
		v.finalizer, v.protected = false, false
		return had
	})
	claimTakenOut = changed(unbinding, func(v *object) bool {
		had := v.ref && v.phase == released
		v.ref, v.phase = false, available
		return had
	})
)

func etcdSaved(w *worker, s *state, _ int) bool {
	if s.left[restores] == 0 || s.saved != 0 {
		return false
	}
	s.saved, s.backup = w.tree.keep(s.api.unversioned()), s.lease
	return true
}

// etcdRestored: objects have other versions than before, because the server counts on from another
// one. A restore takes seconds, in which requests fail; work that goes on beside it waits for the
// disk. An Undo that does so would remove the empty directory of a claim that the restored server
// has bound, and nothing can hinder that. Before an Undo because the claim has a volume that was
// kept for it there is a look at the disk, which counts as that.
func etcdRestored(w *worker, s *state, _ int) bool {
	for node := range s.daemons {
		if at := w.tree.place(s.daemons[node].task); at != nil && (at.asks.kind != onDisk || at.asks.disk.name == "Undo" || s.unasked) {
			return false
		}
	}
	if at := w.tree.place(s.adopter); at != nil && at.asks.kind != onDisk {
		return false
	}
	if s.saved == 0 || !s.spend(restores) {
		return false
	}
	was := s.api
	s.api = w.tree.etcds.value(s.saved)
	for cell := range s.api.volumes {
		s.off[cell] = s.off[cell] && s.poolOf(cell) != everyPool
		s.api.volumes[cell].version = next(was.volumes[cell].version)
	}
	s.api.sizesRestored(&was)
	s.api.snapshot.version = next(was.snapshot.version)
	s.loses()
	s.saved, s.lease, s.revision, s.backup = 0, s.backup, s.backup.version, lease{}
	s.late = late{} // it went with the server
	return true
}

// nodeGoes: its daemon ends with it. The node may never be back.
func nodeGoes(_ *worker, s *state, node int) bool {
	d := &s.daemons[node]
	if !d.exists || d.off || !s.spend(departures) {
		return false
	}
	s.die(node)
	d.off = true
	return true
}

// nodeBack: a node that started again is another holder of leases.
func nodeBack(_ *worker, s *state, node int) bool {
	d := &s.daemons[node]
	was := d.off
	if was {
		d.off, d.boot = false, 1-d.boot
	}
	return was
}

func watchesBreak(w *worker, s *state, node int) bool {
	d := &s.daemons[node]
	if !d.up || d.cache != 0 || !s.spend(breaks) {
		return false
	}
	d.cache = w.tree.keep(s.api.unversioned())
	return true
}

// A mount point is that of a pool on a node.
const mountPoints = nodes * pools

func mountName(i int) string { return poolName(i%pools) + ofNode(i/pools) }

// has reports whether a node has a pool in this world.
func (s *state) has(node, pool int) bool {
	if pool == nodePool {
		return node == 0 || s.twice
	}
	return s.daemons[node].exists && slices.Contains(s.in[:], uint8(pool))
}

func unmounted(_ *worker, s *state, i int) bool {
	mounted := &s.mounted[i/pools][i%pools]
	if !*mounted || !s.spend(unmounts) {
		return false
	}
	*mounted = false
	return true
}

func remounted(_ *worker, s *state, i int) bool {
	mounted := &s.mounted[i/pools][i%pools]
	if *mounted || !s.has(i/pools, i%pools) {
		return false
	}
	*mounted = true
	return true
}

func looked(w *worker, s *state, i int) bool {
	d, open := &s.daemons[i/pools], &s.daemons[i/pools].open[i%pools]
	if !d.up || d.task != 0 && !s.exchanges() {
		return false
	}
	was, saw, mark := *open, d.look.seen, s.mark
	*open = w.mayOpen(s, d, i%pools)
	if i%pools == int(s.spare.pool) {
		d.look.seen = s.inPlace
	}
	d.look.looked = d.task != 0
	return was != *open || saw != d.look.seen || mark != s.mark
}

func started(w *worker, s *state, node int) bool {
	d := &s.daemons[node]
	if d.up || !d.exists || d.off {
		return false
	}
	d.elsewhere = s.other
	w.starts(s, node)
	w.idle(s)
	return true
}

func timePasses(w *worker, s *state, node int) bool {
	d := &s.daemons[node]
	was := d.memory
	if !d.up || d.task != 0 {
		return false
	}
	d.memory = w.tree.later(was)
	return was != d.memory
}
