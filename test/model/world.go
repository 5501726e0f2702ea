package model

import (
	"fmt"
	"hash/maphash"
)

// The size of the world: so many names of claims, and so many claims that have each name, one after
// the other.
const (
	slots = 3
	lives = 2
	cells = slots * lives // a cell is one claim by its UID, and all that is made for it
	nodes = 2             // each with a daemon, as far as a world has them
)

// The pools: one of scope node, which only the first node has, one of scope shared, and one of
// scope every-node.
const (
	nodePool = iota
	sharedPool
	everyPool
	pools
	stores = pools + nodes - 1 // filesystems: the last pool has one on each node
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
	exists  bool
	bound   bool
	in      uint8 // the pool that its class leads to
	life    uint8 // which of those of its name
	clone   bool  // of the claim with the first name
	restore bool  // from the snapshot
	// unasked: kube-controller-manager has asked no provisioner for it. elsewhere: it is bound to a
	// volume that was kept for it.
	unasked, elsewhere bool
	open               bool  // no node is chosen for it
	turn               uint8 // the version of one without a volume, in worlds of pods
	growth
}

// object is a volume object.
type object struct {
	exists    bool
	deleting  bool
	finalizer bool  // the product's
	protected bool  // the finalizer of pv-protection
	retain    bool  // the policy is Retain, else it is Delete
	ref       bool  // it names its claim
	in        uint8 // its pool
	pattern   bool  // its path has the other pattern
	phase     phase
	astray    bool  // people edited the label by which its daemons watch it
	of        uint8 // in the second pool: 1 and the node whose alone it is, 0: it is shared
	size      more
	version   uint8
	marks
}

// etcd is what the API server has.
type etcd struct {
	claims   [slots]claim
	volumes  [cells]object
	tombs    [cells]tomb
	snapshot content
	kept     [slots]kept // volumes of others, for the claims of each name
	pods     waitingPods
}

// setting is what a process is started with.
type setting struct {
	node      uint8
	archive   bool // its configuration says on_delete = "archive"
	pattern   bool // another pattern for directories than at first
	names     naming
	elsewhere bool  // it knows that the API server is another cluster's
	room      uint8 // how many units its pool can promise, 0: any number, and what it has promised is left out
	steady    bool  // no call to the disk fails in this world
	peer      bool  // another provisioner is its alias, whose volumes are in the first pool
	single    bool  // its configuration has scope node for the second pool, and not scope shared
	pods      bool  // the claims are those of pods in this world
}

// daemon is one process, and what it knows.
type daemon struct {
	setting
	exists  bool // the world has its node
	off     bool // and that is gone
	boot    uint8
	up      bool
	open    [pools]bool // the pools' gates
	memory  uint32      // what it knows of its work (tree.memories)
	task    uint32      // the place in the tree of its work, 0 for none
	cache   uint32      // what its watches brought before they broke (tree.etcds), 0: they are current
	past    past        // of what its broken watches have
	run     uint32      // the call of its work that was stopped, with the process (disks.runs), 0 for none
	stays   uint8       // of which cells the watch brought that the volume is to stay, while it works
	fenced  bool        // in that work the API server said that it leads
	going   uint8       // cells of scope every-node of which it said in that work that their data is to go
	elector elector
	beside  uint32 // what it knows since another worker of it worked beside its work (tree.memories), 0: none did
	held    bool   // another worker works just now
	barred  uint8  // names for whose claims it may make nothing in its work, as long as a volume is kept for them
	counted bool   // the records of the second pool are of a scope with which it keeps out
	look           // at the first pool
}

// state is the whole world at one moment.
type state struct {
	api     etcd
	saved   uint32         // a backup of etcd (tree.etcds), 0 for none
	disks   [stores]uint32 // what is on the pools' filesystems (disks.images)
	mounted [nodes][pools]bool
	daemons [nodes]daemon
	spare   spare
	scoping bool   // the configurations say of which scope the second pool is
	mark    whose  // and so does its marker
	inPlace seat   // what is mounted as the first pool
	twice   bool   // the first pool's disk can be mounted on the other node
	adopter uint32 // the place in the tree of a call of adopt on the first node, 0 for none
	other   bool   // the API server that daemons reach is another cluster's, which has nothing
	people  bool   // people made a directory under a volume's name
	late    late
	lease   lease
	backup  lease // of the lease
	// revision is the last version of a lease that the API server gave, or another object got.
	revision     uint8
	clones       bool               // claims with the second name are clones of those with the first one
	rogue        bool               // a directory in the shared pool was moved or removed by work for which no lease was confirmed
	unasked      bool               // claims are made for which no provisioner was asked yet
	collected    [cells]bool        // the tombstone went, as it was old
	hasty        bool               // a directory was made for such a claim while a volume was kept for it
	snapshots    bool               // claims with the second name are made from the snapshot
	whole        bool               // the snapshot was whole
	snapshotGoes bool               // and a daemon let its content go, with policy Delete
	last         uint8              // the node whose daemon moved last, while one is in the middle of its work
	names        uint8              // that claims have in this world
	told         uint8              // names whose claims were told why they have no volume
	in           [slots]uint8       // the pool that the class of a name's claims leads to
	used         [slots]uint8       // how many claims of each name there were
	wrote        [nodes][cells]bool // a pod wrote to the volume, on this node if each has a directory of it
	off          [cells]bool        // the daemon took its finalizer off the object, with policy Delete and without its claim
	consent      [nodes][cells]bool // and then the object was deleted; of scope every-node as decides has it
	kept         [cells]bool        // of scope every-node: the finalizer went with policy Retain
	left         [budgets]uint8
}

// budget bounds how often an event happens, so that the world is finite.
type budget uint8

const (
	kills          budget = iota // of the daemon, anywhere
	restores                     // of etcd
	policies                     // changes of a volume's policy
	deletions                    // of a volume object by people
	forced                       // finalizers taken off by people
	unbinding                    // a claim taken out of a volume object by people
	breaks                       // of the watches
	losses                       // requests whose response is lost, or that fail
	unmounts                     // of the pool
	configs                      // changes of on_delete
	elections                    // terms of the shared pool's lease that begin
	standbys                     // pieces of work that a daemon begins in the shared pool while it does not lead
	switches                     // from a daemon in the middle of its work to the other one
	stops                        // of a daemon in a call to the shared pool
	departures                   // of nodes, which may come back
	patterns                     // changes of the directories' pattern
	renames                      // changes of the provisioner's name
	clusters                     // that the API server is another cluster's
	sizes                        // changes of what a claim requests
	strangers                    // directories that people make under a volume's name while the daemon makes it
	workers                      // pieces of work that another worker of a daemon does beside one
	snapshotsTaken               // snapshots that people make
	snapshotEnds                 // what they do to end it
	collections                  // of tombstones that are old
	keeps                        // volumes that are kept for a claim, and deletions of these
	adoptions                    // calls of adopt
	undoings                     // calls of adopt --undo
	peers                        // volumes that the other provisioner removes
	clonings                     // of the first pool's disk
	swaps                        // of the first pool's filesystem for another one
	labels                       // changes of a volume object's label
	scopings                     // changes of the second pool's scope, and what people say of that
	lates                        // requests that are served after they were given up
	choices                      // of a node for a claim, by the scheduler
	ends                         // claims and pods that people delete, in worlds of pods
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

// daemonName is what an order of events calls a node's daemon.
func daemonName(node int) string {
	return "the daemon" + ofNode(node)
}

// ofNode is what an order has behind a thing of a node. Nothing is said of the first one, which
// most worlds have alone.
func ofNode(node int) string {
	if node == 0 {
		return ""
	}
	return " of " + nodeName(node)
}

// poolName is what an order calls a pool.
func poolName(pool int) string {
	if pool == nodePool {
		return "the pool"
	}
	return "pool " + poolNames[pool]
}

func nodeName(node int) string { return fmt.Sprintf("n%d", node) }
func slotName(slot int) string { return fmt.Sprintf("c%d", slot) }
func uidOf(cell int) string    { return fmt.Sprintf("c%d-%d", cell/lives, cell%lives) }

// nameOf is the name of a cell's volume, or of the snapshot.
func nameOf(cell int) string {
	if cell == snapshotCell {
		return snapshotHandle
	}
	return "pvc-" + uidOf(cell)
}

// numberOf is the cell with this name of a volume, -1 for none.
func numberOf(pv string) int {
	for cell := range cells {
		if nameOf(cell) == pv {
			return cell
		}
	}
	if pv == snapshotHandle {
		return snapshotCell
	}
	return -1
}

// cells is how many of the cells there can be something of in this world.
func (s *state) cells() int { return int(s.names) * lives }

// poolOf is the pool of a cell.
func (s *state) poolOf(cell int) int {
	return int(s.in[cell/lives])
}

// concerns reports whether a node's daemon has to do with a cell.
func (s *state) concerns(node, cell int) bool {
	return s.daemons[node].exists && (node == 0 || s.twice || s.poolOf(cell) != nodePool)
}

// busy reports whether a daemon is at work, or a request of one is in flight.
func (s *state) busy() bool {
	for d := range s.daemons {
		if s.daemons[d].task != 0 || s.daemons[d].held {
			return true
		}
	}
	return s.adopter != 0 || s.late.at != 0
}

// turns gives a daemon the next step. The other one may be in the middle of its work: so often as
// the budget has it.
func (s *state) turns(node int) bool {
	was := s.last
	s.last = uint8(node)
	return int(was) == node || s.daemons[was].task == 0 || s.spend(switches)
}

// settled forgets what only work in flight can tell: the versions of objects.
func (s *state) settled() {
	if !s.busy() {
		s.last = 0
		s.api = s.api.unversioned()
	}
}

func (e etcd) unversioned() etcd {
	e.snapshot.version = 0
	for i := range e.claims {
		e.claims[i].version, e.claims[i].turn = 0, 0
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
