package main

import (
	"fmt"
	"hash/maphash"
)

// The size of the world: so many names of claims, and so many claims that have each name, one after the other.
const (
	slots = 2
	lives = 2
	cells = slots * lives // a cell is one claim by its UID, and all that is made for it
)

// phase is a volume object's status.phase.
type phase uint8

const (
	pending phase = iota
	available
	bound
	released
)

// claim is a claim object.
type claim struct {
	exists bool
	bound  bool
	life   uint8 // which of those of its name
}

// object is a volume object.
type object struct {
	exists    bool
	deleting  bool
	finalizer bool // the product's
	protected bool // the finalizer of pv-protection
	retain    bool // the policy is Retain, else it is Delete
	ref       bool // it names its claim
	phase     phase
	version   uint8
}

// etcd is what the API server has.
type etcd struct {
	claims  [slots]claim
	volumes [cells]object
}

// daemon is one process, and what it knows.
type daemon struct {
	up      bool
	open    bool   // the pool's gate
	archive bool   // its configuration says on_delete = "archive"
	memory  uint32 // what it knows of its work (tree.memories)
	task    uint32 // the place in the tree of its work, 0 for none
	cache   uint32 // what its watches brought before they broke (tree.etcds), 0: they are current
}

// state is the whole world at one moment.
type state struct {
	api     etcd
	saved   uint32 // a backup of etcd (tree.etcds), 0 for none
	disk    uint32 // what is on the pool's filesystem (disks.images)
	mounted bool
	daemon  daemon
	used    [slots]uint8 // how many claims of each name there were
	wrote   [cells]bool  // a pod wrote to the volume
	off     [cells]bool  // the daemon took its finalizer off the object, with policy Delete and without its claim
	consent [cells]bool  // and then the object was deleted
	stays   uint8        // of which cells the watch brought that the volume is to stay, while the daemon works
	left    [budgets]uint8
}

// budget bounds how often an event happens, so that the world is finite.
type budget uint8

const (
	kills     budget = iota // of the daemon, anywhere
	restores                // of etcd
	policies                // changes of a volume's policy
	deletions               // of a volume object by people
	forced                  // finalizers taken off by people
	unbinding               // a claim taken out of a volume object by people
	breaks                  // of the watches
	losses                  // requests whose response is lost, or that fail
	unmounts                // of the pool
	configs                 // changes of on_delete
	budgets
)

var seed = maphash.MakeSeed()

// hash is what states are merged by.
func (s *state) hash() uint64 { return maphash.Comparable(seed, *s) }

// cellOf is the cell of a name's claim that exists.
func cellOf(slot int, c claim) int { return slot*lives + int(c.life) }

// claimOf is the claim of a cell, and whether it exists.
func (e *etcd) claimOf(cell int) (claim, bool) {
	c := e.claims[cell/lives]
	return c, c.exists && int(c.life) == cell%lives
}

func slotName(slot int) string { return fmt.Sprintf("c%d", slot) }
func uidOf(cell int) string    { return fmt.Sprintf("c%d-%d", cell/lives, cell%lives) }
func nameOf(cell int) string   { return "pvc-" + uidOf(cell) }

// numberOf is the cell with this name of a volume, -1 for none.
func numberOf(pv string) int {
	for cell := range cells {
		if nameOf(cell) == pv {
			return cell
		}
	}
	return -1
}

// settled forgets what only work in flight can tell: the versions of objects.
func (s *state) settled() {
	if s.daemon.task != 0 {
		return
	}
	s.api = s.api.unversioned()
}

func (e etcd) unversioned() etcd {
	for i := range e.claims {
		if !e.claims[i].exists {
			e.claims[i] = claim{}
		}
	}
	for i := range e.volumes {
		e.volumes[i].version = 0
		if !e.volumes[i].exists {
			e.volumes[i] = object{}
		}
	}
	return e
}
