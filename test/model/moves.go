package main

import (
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controller"
)

// move is one way from a state to the next one.
type move struct {
	event int    // of events, -1 for what the daemon does
	i     int    // its object
	what  string // of the daemon
	op    op
}

func (m move) String() string {
	switch {
	case m.event >= 0:
		return events[m.event].about(m.i)
	case m.op.kind != ended:
		return fmt.Sprintf("the daemon %s%s", m.op, m.what)
	case m.i >= 0:
		return fmt.Sprintf(m.what, nameOf(m.i))
	}
	return m.what
}

// moves calls visit with each state that can follow, in an order that depends on nothing else.
func (w *worker) moves(s state, visit func(move, state)) {
	for n, e := range events {
		for i := range e.of {
			after := s
			if e.apply(w, &after, i) {
				w.letGo(&after, &s.api, false)
				w.idle(&after)
				visit(move{event: n, i: i}, after)
			}
		}
	}
	switch {
	case !s.daemon.up:
	case s.daemon.task == 0:
		w.beginnings(s, visit)
		if after := s; after.spend(kills) {
			after.die()
			visit(move{event: -1, i: -1, what: "the daemon is killed"}, after)
		}
	default:
		w.goOn(s, visit)
	}
}

// beginnings are the pieces of work that the idle daemon can begin.
func (w *worker) beginnings(s state, visit func(move, state)) {
	begin := func(kind controller.Kind, cell int, what string) {
		after := s
		w.begin(&after, kind, cell)
		visit(move{event: -1, i: cell, what: what}, after)
	}
	view, on := w.view(&s), w.image(&s)
	for cell := range cells {
		if w.claimsWork(&s, &view, cell) {
			begin(controller.WorkClaim, cell, "the daemon takes up the claim of %s")
		}
		if volumesWork(view.volumes[cell], on.cells[cell]) {
			begin(controller.WorkVolume, cell, "the daemon takes up volume %s")
		}
		if purgesWork(on.cells[cell]) {
			begin(controller.WorkPurge, cell, "the daemon takes up the purge of %s")
		}
	}
	if s.disk != 0 {
		begin(controller.WorkRecords, -1, "the daemon compares its records with the API")
	}
}

// claimsWork: the watch has the claim, or the daemon has not ended with one that went.
func (w *worker) claimsWork(s *state, view *etcd, cell int) bool {
	if c, exists := view.claimOf(cell); exists {
		return !c.bound
	}
	m := w.tree.memories.value(s.daemon.memory)
	return m.Unpublished[uidOf(cell)] != "" || len(m.Published) > 0
}

// volumesWork: there is something to decide about the object, or about what is left of one that went.
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

// goOn is what can become of the step that the daemon is about to do.
func (w *worker) goOn(s state, visit func(move, state)) {
	o := w.tree.node(s.daemon.task).asks
	after := s
	w.step(&after)
	visit(move{event: -1, op: o}, after)
	w.killed(s, o, visit)
	if after := s; o.kind != onDisk && after.spend(losses) {
		for _, how := range faults(o) {
			after := after
			if how.done {
				w.serve(&after, o)
			}
			n := w.tree.node(s.daemon.task)
			w.goOnWith(&after, n, response{fault: how.fault})
			visit(move{event: -1, op: o, what: how.what}, after)
		}
	}
}

// killed is the daemon's death before a step, and in it.
func (w *worker) killed(s state, o op, visit func(move, state)) {
	dead := s
	if !dead.spend(kills) {
		return
	}
	dead.die()
	visit(move{event: -1, i: -1, what: "the daemon is killed before it " + o.String()}, dead)
	if o.kind != onDisk || !s.mounted {
		return
	}
	for _, d := range w.tree.disks.do(s.disk, o.disk, w.workshop).died {
		after := dead
		w.put(&after, d.image)
		visit(move{event: -1, op: o, what: ", and is killed after the step " + fmt.Sprintf("%q", d.step)}, after)
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
