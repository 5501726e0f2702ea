package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
)

// settlements are what must hold when nothing more happens: the daemon runs, its pool is mounted,
// its watches are current, and it and kube-controller-manager did all that they do by themselves.
var settlements = []invariant{
	{"ClaimSettles", "a claim has its volume, whole and in its place, unless its data went before", claimSettles},
	{"KeptInPlace", "the directory of a volume that is to be kept, with its object, is in its place", keptInPlace},
	{"PodSettles", "a claim of a pod whose node was chosen has its volume, or was given back and told why",
		podSettles},
	{"ObjectGoes", "an object that is to go with its data is gone", objectGoes},
	{"GrowthSettles", "a claim that requests more than it has gets it, or is told that the pool has no room", growthSettles},
	{"RecordKeepsUp", "the record of a volume in a shared pool has what its object says", recordKeepsUp},
	{"NothingLeft", "nothing is half made, nor half removed but what Retain keeps, and a record without an object is one of data that is kept", nothingLeft},
}

func claimSettles(s *state, on onFile, cell int) string {
	c, exists := s.api.claimOf(cell)
	v := s.api.volumes[cell]
	if !exists || s.consent[on.node][cell] || on.people || v.astray && on.whole() { // of people's directory the claim is told
		return ""
	}
	switch {
	case c.clone && !s.cloneable(), c.restore && !s.restorable():
	case s.ofPods() && !c.bound: // see podSettles
	case !c.bound && !v.exists && s.fits(on) && !(s.poolOf(cell) == everyPool && s.daemons[chosen].off): // which another one takes over, by its clock
		return "its claim is pending"
	case v.exists && v.ref && v.phase == bound && on.place != inPool && !on.away:
		return "its claim is bound, and its directory is " + on.place.Describe()
	}
	return ""
}

func keptInPlace(s *state, on onFile, cell int) string {
	if v := s.api.volumes[cell]; v.exists && v.retain && !v.astray && s.wrote[on.node][cell] && !s.consent[on.node][cell] && on.place != inPool {
		return "its policy is Retain, and its directory is " + on.place.Describe()
	}
	return ""
}

func objectGoes(s *state, on onFile, cell int) string {
	v := s.api.volumes[cell].watched()
	_, claimed := s.api.ownClaim(cell)
	if s.keepsData(on, cell) || v.astray || s.waitsForItsNode(v, on) {
		return ""
	}
	told := on.people || v.peer && !on.recorded // that the directory is not the daemon's
	if v.exists && !v.retain && !claimed && v.phase == released && (v.ref || v.deleting) && !told {
		return "the object stays"
	}
	return ""
}

func nothingLeft(s *state, on onFile, cell int) string {
	v := s.api.volumes[cell]
	c, claimed := s.api.ownClaim(cell)
	switch {
	case on.begun, on.place == inStaging:
		return "something is half made"
	case on.place == emptying && !on.retained && !(v.exists && (claimed || v.retain)): // what came back or is kept by Retain is not emptied further
		return "it is half removed"
	case on.recorded && on.place == nowhere && !v.exists && !(claimed && c.bound):
		return "a record has no directory"
	case on.recorded && on.place == inPool && !v.exists && !claimed && !on.retained && (s.unwanted(on, cell) || on.half):
		return "a directory that nothing wants is left"
	}
	return ""
}

// rounds bounds how long a state may take to settle.
const rounds = 40

// settle lets everything happen that happens by itself, and nothing else. It returns what does not
// hold then, and calls seen with each state on the way, until that reports that it was settled
// before.
func (w *worker) settle(s state, seen func(*state) bool) string {
	var past []state
	for range rounds {
		past = append(past, s)
		if w.byItself(&s, seen) {
			return ""
		}
		if since := slices.Index(past, s); since >= 0 {
			return w.unsettledIn(past[since:])
		}
	}
	return "Settles: it goes on for ever"
}

// unsettledIn returns what does not hold in any of the states through which a daemon goes again and
// again, one that tries a copy anew for example.
func (w *worker) unsettledIn(cycle []state) (wrong string) {
	for _, s := range cycle {
		if wrong = w.unsettled(&s); wrong == "" {
			return ""
		}
	}
	return wrong
}

// byItself is one round. It reports whether it came to a state that is known to settle.
func (w *worker) byItself(s *state, seen func(*state) bool) bool {
	for _, e := range events {
		for i := range e.objects(s) {
			if before := s.api; e.ours && e.apply(w, s, i) {
				w.letGo(s, &before, others)
				w.idle(s)
			}
		}
	}
	if seen(s) {
		return true
	}
	w.elects(s)
	for node := range s.daemons {
		if s.daemons[node].up {
			w.jobs(s, node, s.api, func(j job, _ string) { w.finish(s, node, j) })
		}
	}
	s.ranked()
	return seen(s)
}

// elects lets the daemons look after the lease of the shared pool, the times of which pass.
func (w *worker) elects(s *state) {
	for node := range s.daemons {
		w.hears(s, node)
		if s.daemons[node].elector.doubtful {
			w.tends(s, node, false, nil)
		}
	}
	for node := range s.daemons {
		if s.elects(node) && !s.led() {
			w.tends(s, node, true, nil)
		}
	}
	for node := range s.daemons {
		w.hears(s, node)
	}
}

// led reports whether a daemon works in the shared pool that goes on to renew its lease.
func (s *state) led() bool {
	for node := range s.daemons {
		if d := &s.daemons[node]; d.up && d.elector.role() == leading && d.elector.term == s.lease.token && s.lease.holder == holderOf(node, d.boot) {
			return true
		}
	}
	return false
}

// finish does a piece of work to its end.
func (w *worker) finish(s *state, node int, j job) {
	for w.begin(s, node, j); s.daemons[node].task != 0; {
		w.step(s, node)
	}
}

func (w *worker) unsettled(s *state) string {
	if wrong := w.ofCells(s, settlements, s.abandoned); wrong != "" { // until a node is back
		return wrong
	}
	if wrong := w.ofSnapshots(s, snapshotSettlements); wrong != "" {
		return wrong
	}
	if wrong := w.overdrawn(s, settledAccounts); wrong != "" {
		return wrong
	}
	return w.unadopted(*s)
}

// abandoned reports whether each node is gone that has a pool, or a node with a pool's filesystem
// of its own.
func (s *state) abandoned(part, pool int) bool {
	if pool == everyPool {
		return s.daemons[part].off
	}
	if pool == sharedPool && s.scoping && !s.served() {
		return true
	}
	for node := range s.daemons {
		if s.has(node, pool) && !s.daemons[node].off {
			return false
		}
	}
	return true
}

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
	{"PodKeepsRoom",
		"as long as a pod is there and one of its claims has a volume, there is room for its other claims",
		podKeepsRoom},
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
	if wrong := w.ofCells(s, invariants, noPart); wrong != "" {
		return wrong
	}
	return w.ofSnapshots(s, snapshotInvariants)
}

func noPart(int, int) bool { return false }

// ofCells is the first of these that does not hold, "" if all do, without the parts that are
// excepted.
func (w *worker) ofCells(s *state, all []invariant, except func(part, pool int) bool) string {
	for _, i := range all {
		for cell := range s.cells() {
			for node := range s.parts(cell) {
				if except(node, s.poolOf(cell)) {
					continue
				}
				if wrong := i.broken(s, w.part(s, node, cell), cell); wrong != "" {
					return fmt.Sprintf("%s: %s: %s", i.name, nameOf(cell), wrong)
				}
			}
		}
	}
	return ""
}

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
	for pv, p := range m.Volumes {
		if _, reserved := m.Reserved[pv]; !reserved || w.part(s, node, numberOf(pv)).promised > 0 {
			units += (p.Volume + p.Archived) / unit
		}
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
		m.Reserved, m.Volumes = renamedKeys(m.Reserved), renamedKeys(m.Volumes)
		other[pool] = m
	}
	return other
}
