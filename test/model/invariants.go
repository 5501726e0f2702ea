package model

import (
	"fmt"
)

// invariant must hold in each state. broken returns what is wrong with a cell, "" if nothing is.
type invariant struct {
	name   string
	means  string
	broken func(s *state, on onFile, cell int) string
}

var invariants = []invariant{
	{"DataStays", "data goes only after the daemon itself let the object go, with policy Delete and without its claim", dataStays},
	{"BoundStays", "the directory of a claim that is bound is whole somewhere, empty or not", boundStays},
	{"OneDirectory", "a volume has one directory", oneDirectory},
	{"OneWorker", "in a shared pool nothing is moved or removed but by work for which the API server confirmed the lease", oneWorker},
	{"OwnData", "what is in a volume was written by a pod of its claim, or of the claim that it was copied from", ownData},
	{"ForeignStays", "a directory that the daemon did not make is as it was", foreignStays},
	{"RestoredWhole", "a claim that was made from a snapshot has the data of that", restoredWhole},
	{"KeptFirst", "nothing is made for a claim that no provisioner was asked for and for which a volume was kept when the work on it began", keptFirst},
	{"OtherDiskStays", "nothing is changed on a filesystem that has another marker than the pool's", otherDiskStays},
	{"OneOwner", "the gate of a pool of scope node is open on one node", oneOwner},
	{"SizeKept", "what a claim has its volume object says, and what that says the record keeps", sizeKept},
}

// whole reports whether a directory was not touched since a pod had it.
func (f onFile) whole() bool { return f.place == inPool || f.place == inTrash || f.place == inArchive }

func dataStays(s *state, on onFile, cell int) string {
	if s.wrote[on.node][cell] && !s.consent[on.node][cell] && (!on.whole() || on.data == "") {
		return "the data is " + on.place.Describe()
	}
	return ""
}

func boundStays(s *state, on onFile, cell int) string {
	c, exists := s.api.claimOf(cell)
	v := s.api.volumes[cell]
	if exists && c.bound && v.exists && v.phase == bound && !s.consent[on.node][cell] && !on.whole() && !on.away && !s.making(on, cell) {
		return "the directory is " + on.place.Describe()
	}
	return ""
}

func oneDirectory(_ *state, on onFile, _ int) string {
	if on.twice {
		return "it has two directories"
	}
	return ""
}

func oneWorker(s *state, _ onFile, cell int) string {
	if s.rogue && s.poolOf(cell) == sharedPool {
		return "no lease was confirmed"
	}
	return ""
}

func ownData(s *state, on onFile, cell int) string {
	if on.data != "" && on.data != uidOf(cell) && on.data != on.origin && !(on.origin == snapshotUID && on.data == uidOf(int(s.api.snapshot.of))) {
		return "it has data of " + on.data
	}
	return ""
}

func foreignStays(s *state, on onFile, cell int) string {
	if !on.alone || s.people && cell == lives-1 && !on.people {
		return "the directory of people was touched"
	}
	return ""
}

// broken is the first invariant that does not hold in a state, "" if all do.
func (w *worker) broken(s *state) string {
	if wrong := w.violated(s); wrong != "" {
		return wrong
	}
	return w.overdrawn(s, accounts)
}

// violated is broken without what a daemon counts as promised.
func (w *worker) violated(s *state) string {
	for _, i := range invariants {
		for cell := range cells {
			for node := range s.parts(cell) {
				if wrong := i.broken(s, w.part(s, node, cell), cell); wrong != "" {
					return fmt.Sprintf("%s: %s: %s", i.name, nameOf(cell), wrong)
				}
			}
		}
	}
	return w.ofSnapshots(s, snapshotInvariants)
}
