package model

import "github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"

// What people and the snapshot-controller do (external-snapshotter v8.6.0, pkg/common-controller).

// snapshotTaken: people make a VolumeSnapshot, and the snapshot-controller its content.
func snapshotTaken(_ *worker, s *state, cell int) bool {
	c, exists := s.api.ownClaim(cell)
	v := s.api.volumes[cell]
	if cell/lives != 0 || !exists || !c.bound || !v.exists || s.api.snapshot.asked || s.api.snapshot.exists || !s.spend(snapshotsTaken) {
		return false
	}
	s.api.snapshot = content{asked: true, exists: true, of: uint8(cell), finalizer: true}
	return true
}

// snapshotDeleted: the snapshot-controller waits then for a claim that is being made from it, but
// not for one that comes meanwhile. So it may happen at any time.
func snapshotDeleted(_ *worker, s *state, _ int) bool {
	c := &s.api.snapshot
	if !c.asked || c.withdrawn || !s.spend(snapshotEnds) {
		return false
	}
	c.withdrawn = true
	return true
}

// contentFollows is what the snapshot-controller does with the content of a VolumeSnapshot that is
// being deleted.
func contentFollows(_ *worker, s *state, _ int) bool {
	c := &s.api.snapshot
	was := *c
	switch {
	case !c.withdrawn:
	case !c.exists:
		c.asked, c.withdrawn = false, false
	case !c.going:
		c.going, c.version = true, next(c.version)
	case c.retain && !c.deleting:
		c.asked, c.withdrawn = false, false
	case !c.deleting:
		c.deleting, c.version = true, next(c.version)
	}
	c.goes()
	return was != *c
}

// contentDeleted: people delete the content, and not its VolumeSnapshot.
func contentDeleted(_ *worker, s *state, _ int) bool {
	c := &s.api.snapshot
	if !c.exists || c.deleting || !s.spend(snapshotEnds) {
		return false
	}
	c.deleting, c.version = true, next(c.version)
	c.goes()
	return true
}

func contentPolicyChanged(_ *worker, s *state, _ int) bool {
	c := &s.api.snapshot
	if !c.exists || !s.spend(snapshotEnds) {
		return false
	}
	c.retain, c.version = !c.retain, next(c.version)
	return true
}

func contentForced(_ *worker, s *state, _ int) bool {
	c := &s.api.snapshot
	if !c.exists || !c.finalizer || !s.spend(forced) {
		return false
	}
	c.finalizer, c.version = false, next(c.version)
	c.goes()
	return true
}

// contentsWork: there is something to do about the content, or it went while it was worked on.
func (w *worker) contentsWork(s *state, node int, view *etcd) bool {
	c := view.snapshot
	if c.exists {
		return !c.ready || c.deleting
	}
	_, copied := w.tree.memories.value(s.daemons[node].memory).Copies[contentName]
	return copied
}

// takes notes what is on the pool's disk of the snapshot now: that it is whole, and so has not
// gone.
func (s *state) takes(now onFile) {
	if now.snapshotWhole() {
		s.whole, s.snapshotGoes = true, false
	}
}

func (f onFile) snapshotWhole() bool { return f.recorded && f.place == inPool && !f.unnoted }

// goesWithData reports whether the content is to go, and its data with it.
func (c content) goesWithData() bool { return c.deleting && c.going && !c.retain }

// withdraws notes whether a daemon let the content go, by a request that was done, whatever
// response it gets.
func (s *state) withdraws(o op, before content) {
	released := o.kind == releaseContent && before.finalizer && !s.api.snapshot.finalizer
	s.snapshotGoes = s.snapshotGoes || released && before.goesWithData()
}

// restorable reports whether there is a snapshot from which a claim can be made.
func (s *state) restorable() bool {
	c := s.api.snapshot
	return c.asked && !c.withdrawn && c.ready && !s.snapshotGoes && !c.deleting
}

// snapshotJobs calls do with the work that a daemon has with the snapshot.
func (w *worker) snapshotJobs(s *state, node int, view *etcd, do func(j job, what string)) {
	if w.contentsWork(s, node, view) {
		do(job{controllers.WorkContent, nodePool, snapshotCell}, "takes up the snapshot's content")
	}
	if purgesWork(w.image(s, nodePool).snapshot) {
		do(job{controllers.WorkPurge, nodePool, snapshotCell}, "takes up the purge of the snapshot")
	}
}
