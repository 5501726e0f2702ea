package model

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/adoptrules"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// Volumes of another provisioner are adopted, and given up again, by a process beside the daemon: a
// call of adopt on the first node. Its requests and calls to the disk are steps as the daemon's
// are.

// adoption is what a call of adopt is to do.
type adoption uint8

const (
	noAdoption adoption = iota
	takes               // hostpath-provisioner adopt
	givesUp             // hostpath-provisioner adopt --undo
)

var (
	adoptionWords   = [...]string{takes: "is run", givesUp: "is run with --undo"}
	adoptionBudgets = [...]budget{takes: adoptions, givesUp: undoings}
)

// marks are what tells of the other provisioner on a volume object.
type marks struct {
	peer     bool // it made the volume
	adopting bool // a call of adopt is about to record the volume
	adopted  bool // the object has our labels
	before   bool // and had our finalizer before it got them
	kept     note // what the pool keeps for it
}

// note is the size that an object says to be kept for its volume, of the capacity that it has.
type note uint8

const (
	noNote  note = iota // its capacity is kept
	nothing             // it had no claim that requests anything
	noted               // one unit, and one more in each that follows
)

// noteOf is what the world keeps of plan.SizeAnnotation.
func noteOf(v *corev1.PersistentVolume) note {
	said, is := v.Annotations[plan.SizeAnnotation]
	if !is {
		return noNote
	}
	for n := nothing; n <= noted+note(most); n++ {
		if said == plan.SizeNote(v, n.quantity()) {
			return n
		}
	}
	panic("no size of this world: " + said)
}

func (n note) quantity() resource.Quantity {
	if n == nothing {
		return resource.Quantity{}
	}
	return more(n - noted).quantity()
}

func marksOf(v *corev1.PersistentVolume) marks {
	said, adopted := v.Annotations[plan.AdoptedAnnotation]
	return marks{
		peer: v.Annotations[plan.ProvisionedBy] == plan.Kubevirt, adopting: v.Annotations[adoptrules.AdoptingAnnotation] != "",
		adopted: adopted, before: said == adoptrules.AdoptedWith, kept: noteOf(v),
	}
}

// markedOn gives an object that was made as one of ours the marks of the other provisioner's.
func (m marks) markedOn(v *corev1.PersistentVolume) {
	if !m.peer {
		return
	}
	if m.adopting {
		v.Annotations[adoptrules.AdoptingAnnotation] = nodeName(chosen)
	}
	if m.kept != noNote {
		v.Annotations[plan.SizeAnnotation] = plan.SizeNote(v, m.kept.quantity())
	}
	switch {
	case !m.adopted:
		maps.DeleteFunc(v.Labels, func(key, _ string) bool { return key == plan.NodeLabel || key == plan.PoolLabel })
	case m.before:
		v.Annotations[plan.AdoptedAnnotation] = adoptrules.AdoptedWith
	default:
		v.Annotations[plan.AdoptedAnnotation] = adoptrules.AdoptedWithout
	}
}

// watched is the object as far as daemons watch it, by its labels.
func (v object) watched() object {
	if v.peer && !v.adopted {
		return object{}
	}
	return v
}

// peerMakes: the other provisioner makes a directory and an object for a claim.
func peerMakes(w *worker, s *state, cell int) bool {
	c, exists := s.api.claimOf(cell)
	free := !s.api.volumes[cell].exists && w.on(s, cell).place == nowhere
	if !s.daemons[0].peer || s.poolOf(cell) != nodePool || !exists || c.bound || !free || !s.mounted[0][nodePool] {
		return false
	}
	f := maps.Clone(w.image(s, nodePool).files)
	f[nameOf(cell)] = "/"
	w.put(s, nodePool, w.tree.disks.image(f))
	s.api.create(cell, object{exists: true, ref: true, size: c.asks, marks: marks{peer: true}})
	return true
}

// peerRemoves: the other provisioner runs again, and removes a volume that is not adopted, with its
// object.
func peerRemoves(w *worker, s *state, cell int) bool {
	v, on := s.api.volumes[cell], w.on(s, cell)
	theirs := v.exists && v.peer && !v.adopted && !v.adopting && s.adopter == 0
	if !theirs || v.retain || v.phase != released || on.place != record.InPool || !s.mounted[0][nodePool] || !s.spend(peers) {
		return false
	}
	f := maps.Clone(w.image(s, nodePool).files)
	delete(f, nameOf(cell))
	delete(f, nameOf(cell)+"/data")
	s.disks[nodePool], s.consent[0][cell] = w.tree.disks.image(f), true
	v.deleting, v.version = true, next(v.version)
	s.api.put(cell, v)
	return true
}

// adoptMoves are what a call of adopt can do, or that one is made.
func (w *worker) adoptMoves(s state, visit func(move, state)) {
	switch {
	case !s.daemons[0].peer:
	case s.adopter != 0:
		w.adoptGoesOn(s, visit)
	case s.mounted[0][nodePool]:
		for _, call := range []adoption{takes, givesUp} {
			if after := s; after.spend(adoptionBudgets[call]) {
				w.adopts(&after, call)
				visit(move{event: -1, i: -1, adopt: true, what: adoptionWords[call]}, after)
			}
		}
	}
}

// adopts begins a call.
func (w *worker) adopts(s *state, call adoption) {
	w.adoptAt(s, w.tree.begin(root{job: job{pool: nodePool, cell: -1}, setting: s.daemons[0].setting, adoption: call}, w.product))
}

// adoptAt notes how far a call came.
func (w *worker) adoptAt(s *state, at *place) {
	s.adopter = at.id
	if at.asks.kind == ended {
		s.adopter = 0
	}
	w.idle(s)
}

// adoptGoesOn is what can become of the step that a call is about to do.
func (w *worker) adoptGoesOn(s state, visit func(move, state)) {
	at := w.tree.place(s.adopter)
	after, m := s, move{event: -1, op: at.asks, adopt: true}
	w.adoptStep(&after)
	visit(m, after)
	w.adoptKilled(s, at.asks, visit)
	if after := s; at.asks.kind != onDisk && after.spend(losses) {
		for _, how := range faults(at.asks) {
			after := after
			if how.done {
				w.adoptServed(&after, at.asks)
			}
			w.adoptAt(&after, w.tree.responded(at, response{fault: how.fault}, w.product))
			m.what = how.what
			visit(m, after)
		}
	}
}

// adoptKilled is a call's death before a step, and in it. What it began stays, until the next call.
func (w *worker) adoptKilled(s state, o op, visit func(move, state)) {
	if !s.spend(kills) {
		return
	}
	s.adopter = 0
	dead := s
	w.idle(&dead)
	visit(move{event: -1, i: -1, adopt: true, what: "is killed before it " + o.String()}, dead)
	if o.kind != onDisk || !s.mounted[0][nodePool] {
		return
	}
	for _, d := range w.tree.disks.do(s.disks[nodePool], o.disk, w.workshop).died {
		after := s
		w.put(&after, nodePool, d.image)
		w.idle(&after)
		visit(move{event: -1, op: o, adopt: true, what: fmt.Sprintf(", and is killed after the step %q", d.step)}, after)
	}
}

// adoptStep does what a call asks for next, and lets it go on with the response.
func (w *worker) adoptStep(s *state) {
	at := w.tree.place(s.adopter)
	w.adoptAt(s, w.tree.responded(at, w.adoptServed(s, at.asks), w.product))
}

// adoptServed does what a call asks for.
func (w *worker) adoptServed(s *state, o op) response {
	switch o.kind {
	case onDisk:
		if !s.mounted[0][nodePool] {
			return response{disk: w.tree.disks.result(moved)}
		}
		done := w.tree.disks.do(s.disks[nodePool], o.disk, w.workshop)
		w.put(s, nodePool, done.image)
		return response{disk: done.result}
	case listVolumes:
		return w.tree.listed(etcd{volumes: s.api.volumes})
	}
	before := s.api
	r := s.api.serve(o)
	w.letGo(s, &before, others)
	return r
}

// mark is Client.PatchVolume (daemon/kube) and what the API server does with its patch.
func (e *etcd) mark(cell int, given object) response {
	now := e.volumes[cell]
	switch {
	case !now.exists:
		return response{fault: refused}
	case now.version != given.version:
		return response{fault: conflict}
	}
	given.version = next(now.version)
	e.put(cell, given)
	return response{volume: given}
}

// adoptionSettlement is an invariant of what there is after one more call of adopt in a state that
// has settled.
type adoptionSettlement struct {
	invariant
	after adoption
}

var adoptionSettlements = []adoptionSettlement{
	{invariant{"AdoptionEnds", "a call of adopt that was cut off is finished by the next one, as long as the claim is bound", adoptionEnds}, takes},
	{invariant{"GivenUp", "adopt --undo leaves neither marks on an object nor a record, unless the volume is being removed", givenUp}, givesUp},
}

func adoptionEnds(s *state, on onFile, cell int) string {
	v := s.api.volumes[cell]
	_, claimed := s.api.claimOf(cell)
	if v.peer && !v.deleting && claimed && v.phase == bound && on.place == inPool && (!v.adopted || v.adopting || !v.finalizer || !on.recorded) {
		return "it is adopted in part"
	}
	return ""
}

func givenUp(s *state, on onFile, cell int) string {
	v := s.api.volumes[cell]
	goes := on.recorded && (v.deleting || v.phase == released && !v.retain)
	switch {
	case !v.peer || goes || on.place != inPool:
		return ""
	case v.adopted || v.adopting || v.finalizer:
		return "the object has marks"
	case on.recorded:
		return "it has a record"
	}
	return ""
}

// unadopted is the first of these that does not hold, "" if all do.
func (w *worker) unadopted(s state) string {
	if !s.daemons[0].peer {
		return ""
	}
	for _, i := range adoptionSettlements {
		after := s
		for w.adopts(&after, i.after); after.adopter != 0; {
			w.adoptStep(&after)
		}
		if wrong := w.ofCells(&after, []invariant{i.invariant}, noPart); wrong != "" {
			return wrong
		}
	}
	return ""
}
