package model

import "maps"

// Who takes a lease over counts what the pool has promised: others changed that meanwhile.

// recounts has a daemon forget what it knows of the shared pool's promises, also in the middle of
// its work.
func (w *worker) recounts(s *state, node int) {
	d := &s.daemons[node]
	if d.room == 0 {
		return
	}
	forget := func(id uint32) uint32 {
		m := w.tree.memories.value(id)
		m.Promised = maps.Clone(m.Promised)
		delete(m.Promised, poolNames[sharedPool])
		return w.tree.remember(m)
	}
	if at := w.tree.place(d.task); at == nil {
		d.memory = forget(d.memory)
	} else if d.beside == 0 {
		d.beside = forget(at.memory)
	} else {
		d.beside = forget(d.beside)
	}
}

// counts reports whether a daemon's account of a pool can be compared with the records: of a shared
// pool that of the daemon that works there, once another one has ended what it was paused in and
// the records were looked at.
func (s *state) counts(node, pool int) bool {
	e := s.daemons[node].elector
	return pool != sharedPool || e.role() == leading && e.term == s.lease.token
}

// recordKeepsUp: a daemon of a shared pool that was paused in the middle of an expansion writes its
// size after the next daemon's.
func recordKeepsUp(s *state, on onFile, cell int) string {
	if s.poolOf(cell) != sharedPool {
		return ""
	}
	return sizeInRecordKept(s, on, cell)
}

// sizeInRecordKept compares the size that a volume object says with the record's.
func sizeInRecordKept(s *state, on onFile, cell int) string {
	c, exists := s.api.claimOf(cell)
	v := s.api.volumes[cell]
	if exists && c.bound && v.exists && v.phase == bound && on.place == inPool && v.size > on.size {
		return "its volume object says more than its record"
	}
	return ""
}
