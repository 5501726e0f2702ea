package model

import (
	"cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
)

// A daemon has several workers. While one is in the middle of its work another one may do a whole
// piece: what both know they know as one process, so that the first one goes on with what the
// second one left. Two that are in the middle at the same time are not played, nor a comparison of
// all records beside other work.

// secondWorker are the pieces of work that another worker of a daemon does before the step that its
// work is about to do.
func (w *worker) secondWorker(s state, node int, visit func(move, state)) {
	if d := &s.daemons[node]; d.run != 0 || d.cache != 0 || !s.spend(workers) {
		return
	}
	first := w.tree.place(s.daemons[node].task)
	w.jobs(&s, node, w.view(&s, node), func(j job, what string) {
		if j.kind == controllers.WorkRecords || j.pool == sharedPool || j == first.root.job {
			return
		}
		after := s
		w.beside(&after, node, first, j)
		visit(move{event: -1, i: j.cell, node: node, what: what + ", beside that, and ends it"}, after)
	})
}

// beside does one of them. What the first worker had begun counts as begun.
func (w *worker) beside(s *state, node int, first *place, j job) {
	d := &s.daemons[node]
	before := *d
	d.memory, d.held, d.stays = cmp.Or(d.beside, first.memory), true, 0
	for w.begin(s, node, j); d.task != 0; {
		w.step(s, node)
	}
	before.beside = d.memory
	*d = before
}
