package model

import (
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
)

// move is one way from a state to the next one.
type move struct {
	event int    // of events, -1 for what a daemon does
	i     int    // its object
	node  int    // of the daemon
	what  string // of the daemon
	op    op
	adopt bool // a call of adopt, and no daemon does it
}

func (m move) String() string {
	switch {
	case m.event >= 0:
		return events[m.event].about(m.i)
	case m.op.kind != ended:
		return fmt.Sprintf("%s %s%s", m.subject(), m.op, m.what)
	case m.i >= 0:
		return daemonName(m.node) + " " + fmt.Sprintf(m.what, nameOf(m.i))
	}
	return m.subject() + " " + m.what
}

// subject is what does it.
func (m move) subject() string {
	if m.adopt {
		return "adopt"
	}
	return daemonName(m.node)
}

// moves calls each with each state that can follow, in an order that depends on nothing else.
func (w *worker) moves(s state, each func(move, state)) {
	visit := func(m move, after state) {
		after.ranked()
		each(m, after)
	}
	for n, e := range events {
		for i := range e.objects(&s) {
			after := s
			if e.apply(w, &after, i) {
				w.letGo(&after, &s.api, others)
				w.idle(&after)
				visit(move{event: n, i: i}, after)
			}
		}
	}
	w.adoptMoves(s, visit)
	for node := range s.daemons {
		w.daemonMoves(s, node, visit)
		if s.elects(node) {
			w.leaseMoves(s, node, visit)
		}
	}
}

// daemonMoves is what a node's daemon can do.
func (w *worker) daemonMoves(s state, node int, visit func(move, state)) {
	switch d := &s.daemons[node]; {
	case !d.up, !s.turns(node):
	case d.task == 0:
		w.beginnings(s, node, visit)
		if after := s; after.spend(kills) {
			after.die(node)
			visit(move{event: -1, i: -1, node: node, what: "is killed"}, after)
		}
	default:
		w.goOn(s, node, visit)
	}
}

// beginnings are the pieces of work that an idle daemon can begin.
func (w *worker) beginnings(s state, node int, visit func(move, state)) {
	w.jobs(&s, node, w.view(&s, node), func(j job, what string) {
		after := s
		if j.pool == sharedPool && !s.daemons[node].single && s.daemons[node].elector.role() != leading && !after.spend(standbys) {
			return
		}
		w.begin(&after, node, j)
		visit(move{event: -1, i: j.cell, node: node, what: what}, after)
	})
}

// jobs calls do with each piece of work that a daemon has.
func (w *worker) jobs(s *state, node int, view etcd, do func(j job, what string)) {
	for cell := range s.cells() {
		if !s.concerns(node, cell) {
			continue
		}
		pool := s.poolOf(cell)
		if w.claimsWork(s, node, &view, cell) {
			do(job{controllers.WorkClaim, pool, cell}, "takes up the claim of %s")
		}
		on := w.part(s, node, cell)
		v := view.volumes[cell].watched()
		if volumesWork(v, on) || pool == everyPool && partsWork(v, on) {
			do(job{controllers.WorkVolume, pool, cell}, "takes up volume %s")
		}
		if purgesWork(on) {
			do(job{controllers.WorkPurge, pool, cell}, "takes up the purge of %s")
		}
	}
	if s.snapshots && node == 0 {
		w.snapshotJobs(s, node, &view, do)
	}
	w.heldWork(s, node, do)
	for pool := range pools {
		if (s.disks[storeOf(pool, node)] != 0 || s.daemons[node].room > 0) && s.has(node, pool) {
			do(job{controllers.WorkRecords, pool, -1}, recordsWords(pool))
		}
	}
}

// recordsWords is what an order says of the work that looks at all records of a pool.
func recordsWords(pool int) string {
	if pool == nodePool {
		return "compares its records with the API"
	}
	return "compares the records of " + poolName(pool) + " with the API"
}

// claimsWork: the watch has the claim, or the daemon has not ended with one that went.
func (w *worker) claimsWork(s *state, node int, view *etcd, cell int) bool {
	held := w.holds(s, node, cell)
	if c, exists := view.claimOf(cell); exists {
		unpublished := w.tree.memories.value(s.daemons[node].memory).Unpublished[uidOf(cell)] != ""
		waits := !c.bound && !(c.open && c.unasked)
		return held && c.bound || waits || c.asks > c.has || c.elsewhere && unpublished
	}
	m := w.tree.memories.value(s.daemons[node].memory)
	return held || m.Unpublished[uidOf(cell)] != "" || len(m.Published) > 0
}

// volumesWork: there is something to decide about the object, or about what is left of one that
// went.
func volumesWork(v object, on onFile) bool {
	if !v.exists {
		return on.recorded && on.place != inPool
	}
	return v.deleting || v.phase == released || on.place != inPool
}

// purgesWork: the volume is on its way out of the disk.
func purgesWork(on onFile) bool {
	return on.place == emptying || on.recorded && (on.place == nowhere || on.place == inArchive)
}

// goOn is what can become of the step that a daemon is about to do.
func (w *worker) goOn(s state, node int, visit func(move, state)) {
	at := w.tree.place(s.daemons[node].task)
	o := at.asks
	after, goesOn := s, ""
	if s.daemons[node].run != 0 {
		goesOn = " to its end"
	}
	w.step(&after, node)
	visit(move{event: -1, node: node, op: o, what: goesOn}, after)
	if goesOn == "" {
		w.stopped(s, node, o, visit)
	}
	w.otherOrder(s, node, at, visit)
	w.besides(s, node, at, visit)
	w.secondWorker(s, node, visit)
	w.killed(s, node, o, visit)
	w.givesUp(s, node, at, visit)
	if after := s; o.kind != onDisk && after.spend(losses) {
		for _, how := range faults(o) {
			after := after
			if how.done {
				w.serve(&after, node, o)
			}
			w.goOnWith(&after, node, at, response{fault: how.fault})
			visit(move{event: -1, node: node, op: o, what: how.what}, after)
		}
	}
}

// killed is a daemon's death before a step, and in it.
func (w *worker) killed(s state, node int, o op, visit func(move, state)) {
	if !s.spend(kills) {
		return
	}
	dead := s
	dead.die(node)
	visit(move{event: -1, i: -1, node: node, what: "is killed before it " + o.String()}, dead)
	pool := int(o.disk.pool)
	store := storeOf(pool, node)
	if o.kind != onDisk || !s.reaches(node, o.disk) || s.daemons[node].run != 0 {
		return
	}
	c := o.disk
	c.on = 0
	for _, d := range w.tree.disks.do(s.disks[store], c, w.workshop).died {
		after := s
		w.put(&after, store, d.image)
		after.die(node)
		visit(move{event: -1, node: node, op: o, what: ", and is killed after the step " + fmt.Sprintf("%q", d.step)}, after)
	}
}

// loss is a request without a response.
type loss struct {
	fault fault
	done  bool
	what  string
}

// faults are the ways in which a request can fail.
func faults(o op) []loss {
	if !o.kind.writes() {
		return []loss{{lost, false, ", and there is no response"}}
	}
	return []loss{
		{lost, true, ", and the response is lost"}, {lost, false, ", and the request is lost"}, {refused, false, ", and is refused"},
	}
}

// kind is what a step of the product's work asks for.
type kind uint8

const (
	ended          kind = iota // nothing more: the work has ended
	cachedClaim                // a claim that the watch brought
	cachedVolume               // a volume object that the watch brought
	cachedWatched              // whether the watch of claims is current
	cachedCluster              // whether the API server is another cluster's: a request that changes nothing and is not held
	cachedContent              // the snapshot's content that the watch brought
	tells                      // a claim why it has no volume
	getClaim                   // from the API server
	getVolume                  // from the API server
	eachVolume                 // from the API server
	listVolumes                // the same, with their versions
	getContent                 // from the API server
	getSnapshot                // from the API server
	createVolume               // with what in which cell
	releaseVolume              // takes the product's finalizer off
	holdVolume                 // puts the product's finalizer on, if it is unchanged
	deleteVolume               // if it is unchanged
	writeStatus                // of a claim, if it is unchanged
	writeCapacity              // of a volume object, if it is unchanged
	writeContent               // if it is unchanged
	releaseContent             // takes the product's finalizer off, if it is unchanged
	writeTomb                  // if there is none
	writeNode                  // on a claim, if it is unchanged
	markVolume                 // if it is unchanged, by adopt
	readTomb                   // from the API server
	readLease                  // from the API server
	fewVolumes                 // from the API server: those that are kept for claims
	fewPods                    // from the API server
	onDisk                     // a call of daemon/disk/volume
)

// local reports whether a step asks nothing outside of the daemon: nothing else happens before it.
func (k kind) local() bool {
	return k > ended && k < getClaim
}

// writes reports whether a step changes the API server's data.
func (k kind) writes() bool { return k >= createVolume && k <= markVolume }

var kindNames = map[kind]string{
	getContent: "reads the content of", getSnapshot: "reads the VolumeSnapshot of", writeContent: "writes the content of",
	releaseContent: "takes its finalizer off the content of",
	getClaim:       "reads claim", getVolume: "reads volume object", eachVolume: "reads all volume objects", readLease: "reads the lease",
	fewPods: "reads the pods", writeNode: "gives back the claim of",
	fewVolumes:   "reads the volume objects, if they are few",
	createVolume: "creates volume object", releaseVolume: "takes its finalizer off volume",
	holdVolume: "puts its finalizer on volume", deleteVolume: "deletes volume object",
	writeStatus: "writes the status of the claim of", writeCapacity: "writes the size of volume object",
	listVolumes: "reads all volume objects", markVolume: "marks volume object",
	writeTomb: "writes the tombstone of", readTomb: "reads the tombstone of",
}

// op is one step that the product's work asks for.
type op struct {
	kind    kind
	at      int    // a slot or a cell
	with    object // that the product has of the object
	grow    growth // that the claim is to have, of the version that the product has
	disk    call
	content content
	claim   claim // with its node
}

// noCell is in the place of a cell where there is none.
const noCell = -1

// call is a call of daemon/disk/volume.
type call struct {
	name string
	cell int
	spec uint32 // of Create (disks.specs); of Exists 1 for the other pattern; of Resize the size, of ResizeFrom both
	pool uint8
	host uint8 // the node, in a shared pool
	on   seat  // by which filesystem the gate was opened
}

// verb is what is asked for, without of what.
func (o op) verb() string { return kindNames[o.kind] }

func (o op) String() string {
	switch o.kind {
	case ended:
		return "begin its next piece of work"
	case onDisk:
		if o.disk.cell == noCell {
			return "calls " + o.disk.name + " of " + poolName(int(o.disk.pool))
		}
		return "calls " + o.disk.name + " of " + nameOf(o.disk.cell)
	case getClaim:
		return kindNames[o.kind] + " " + slotName(o.at)
	case getContent, getSnapshot, writeContent, releaseContent:
		return kindNames[o.kind] + " " + snapshotHandle
	case eachVolume, listVolumes, readLease, fewVolumes, fewPods:
		return kindNames[o.kind]
	}
	return fmt.Sprint(kindNames[o.kind], " ", nameOf(o.at))
}

// response is what a step has returned. Equal responses let the product do the same.
type response struct {
	fault   fault
	claim   claim
	volume  object
	content content
	yes     bool
	etcd    uint32 // of eachVolume (tree.etcds)
	disk    uint32 // of a call (disks.results)
	stays   uint8  // of which cells the watch brought before that the volume is to stay
	role    role   // in the shared pool, from then on
	gate    look   // of the first pool since then
	memory  uint32 // what the process knows since another worker of it worked (tree.memories), 0: none did
}

// fault is an error of the API.
type fault uint8

const (
	fine     fault = iota
	conflict       // the object was changed
	lost           // no response: it was done, or not
	refused        // it was certainly not done
)
