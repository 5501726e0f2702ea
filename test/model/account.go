package model

import (
	"cmp"
	"maps"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
)

// standard is an invariant of a pool, as a daemon knows it.
type standard struct {
	name   string
	means  string
	broken func(w *worker, s *state, node, pool int) string
}

// accounts are the invariants of what is promised, in worlds in which a pool has room for so many
// units.
var accounts = []standard{
	{"Promised", "a daemon counts at least what the records of its pool promise, and no more once its work is done, unless a call failed", promisedByRecords},
	{"Room", "the records of a pool that no other node has promise no more than it has", inRoom},
}

// settledAccounts are those of states in which the daemon is idle, once everything happened that
// happens by itself.
var settledAccounts = []standard{
	{"PromisedExactly", "a daemon counts what the records of its pool promise", exactly},
}

// account is what a daemon knows of what its pool has promised, in units. known is false before it
// was counted.
func (w *worker) account(s *state, node, pool int) (units uint64, known bool) {
	d := s.daemons[node]
	if at := w.tree.place(d.task); at != nil {
		d.memory = cmp.Or(d.beside, at.memory)
	}
	m := w.tree.memories.value(d.memory).Promised[poolNames[pool]]
	for _, p := range m.Volumes {
		units += (p.Volume + p.Archived) / unit
	}
	return units, m.Known && d.up
}

func promisedByRecords(w *worker, s *state, node, pool int) string {
	units, known := w.account(s, node, pool)
	switch {
	case pool == sharedPool: // another daemon may be in the middle of its work: see exactly
	case known && units < w.promises(s, storeOf(pool, node)):
		return "it counts less than the records promise"
	case known && s.daemons[node].steady && s.daemons[node].task == 0:
		return exactly(w, s, node, pool)
	}
	return ""
}

func exactly(w *worker, s *state, node, pool int) string {
	if units, known := w.account(s, node, pool); known && s.counts(node, pool) && units != w.promises(s, storeOf(pool, node)) {
		return "it does not count what the records promise"
	}
	return ""
}

func inRoom(w *worker, s *state, node, pool int) string {
	// A daemon of a shared pool that was paused between its decision and the call makes what
	// another one has no room for.
	if pool != sharedPool && w.promises(s, storeOf(pool, node)) > uint64(s.daemons[node].room) {
		return "the records promise more than there is"
	}
	return ""
}

// promises is what the records of a filesystem promise, in units.
func (w *worker) promises(s *state, store int) uint64 { return uint64(w.image(s, store).cells[0].all) }

// overdrawn is the first of these that does not hold, "" if all do.
func (w *worker) overdrawn(s *state, all []standard) string {
	for node := range s.daemons {
		for pool := range pools {
			if s.daemons[node].room == 0 || !s.has(node, pool) {
				continue
			}
			for _, one := range all {
				if wrong := one.broken(w, s, node, pool); wrong != "" {
					return one.name + ": " + poolName(pool) + ": " + wrong
				}
			}
		}
	}
	return ""
}

func mirrorPromised(all map[string]capacity.Memory) map[string]capacity.Memory {
	other := maps.Clone(all)
	for pool, m := range other {
		m.Volumes = map[string]capacity.Promise{}
		for pv, p := range all[pool].Volumes {
			m.Volumes[renamed.Replace(pv)] = p
		}
		other[pool] = m
	}
	return other
}
