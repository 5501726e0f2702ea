package main

import (
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controller"
)

// worker plays steps. Each has controllers and a directory of its own, and all share what was learned.
type worker struct {
	tree     *tree
	product  *product
	workshop *workshop
}

func newWorker(t *tree, dir string) (*worker, error) {
	w, err := newWorkshop(dir)
	if err != nil {
		return nil, err
	}
	return &worker{tree: t, product: newProduct(t), workshop: w}, nil
}

// image is what the pool has in a state.
func (w *worker) image(s *state) *image { return w.tree.disks.images.value(s.disk) }

// view is what the daemon's watches have.
func (w *worker) view(s *state) etcd {
	if s.daemon.cache != 0 {
		return w.tree.etcds.value(s.daemon.cache)
	}
	return s.api
}

// begin has the idle daemon begin a piece of work.
func (w *worker) begin(s *state, kind controller.Kind, cell int) {
	n := w.tree.begin(root{kind, cell, s.daemon.memory, s.daemon.open, s.daemon.archive}, w.product)
	w.advance(s, n)
}

// advance goes on to the next step that is not local, or to the end of the work.
func (w *worker) advance(s *state, n *node) {
	for n.asks.kind.local() {
		n = w.tree.responded(n, w.local(s, n.asks), w.product)
	}
	if n.asks.kind != ended {
		s.daemon.task = n.id
		return
	}
	s.daemon.task, s.daemon.memory = 0, n.memory
	w.idle(s)
}

// idle lets the watches bring what they have to the idle daemon, and forgets what only work in flight can tell.
func (w *worker) idle(s *state) {
	s.settled()
	if !s.daemon.up || s.daemon.cache != 0 || s.daemon.task != 0 {
		return
	}
	s.stays = 0
	for cell, v := range s.api.volumes {
		if v.exists {
			s.daemon.memory = w.tree.sees(s.daemon.memory, cell, v, w.product)
		}
	}
}

func (w *worker) local(s *state, o op) response {
	view := w.view(s)
	switch o.kind {
	case cachedClaim:
		return response{claim: view.claims[o.at]}
	case cachedVolume:
		return response{volume: view.volumes[o.at]}
	default:
		return response{yes: s.daemon.cache == 0}
	}
}

// step does what the daemon's work asks for next, and lets the work go on with the response.
func (w *worker) step(s *state) {
	n := w.tree.node(s.daemon.task)
	r := w.serve(s, n.asks)
	w.goOnWith(s, n, r)
}

// goOnWith lets the work go on with a response, before which the watch brought what it had.
func (w *worker) goOnWith(s *state, n *node, r response) {
	r.stays, s.stays = s.stays, 0
	w.advance(s, w.tree.responded(n, r, w.product))
}

// serve does what a step asks for.
func (w *worker) serve(s *state, o op) response {
	switch o.kind {
	case onDisk:
		if !s.mounted {
			return response{disk: w.tree.disks.result(moved)}
		}
		done := w.tree.disks.do(s.disk, o.disk, w.workshop)
		w.put(s, done.image)
		return response{disk: done.result}
	case eachVolume:
		now := s.api.unversioned()
		return response{etcd: w.tree.etcds.of(now, now)}
	}
	before := s.api
	r := s.api.serve(o)
	w.letGo(s, &before, true)
	return r
}

// put notes what is on the disk now. A directory that is new has nothing that was let go, and one that was put back is to
// stay. One that was empty and had neither object nor claim may go.
func (w *worker) put(s *state, id uint32) {
	if id == s.disk {
		return
	}
	was := w.image(s)
	s.disk = id
	for cell, now := range w.image(s).cells {
		switch before := was.cells[cell].place; {
		case before == nowhere && now.place != nowhere:
			s.off[cell], s.consent[cell], s.wrote[cell] = false, false, false
		case before != inPool && before != emptying && now.place == inPool:
			s.off[cell], s.consent[cell] = false, false
		case before == inPool && now.place == nowhere && was.cells[cell].data == "":
			_, claimed := s.api.claimOf(cell)
			s.consent[cell] = s.consent[cell] || !claimed && !s.api.volumes[cell].exists
		}
	}
}

// letGo notes what became of objects: whether the daemon took its finalizer off one with policy Delete whose claim is
// gone, and whether that object was deleted then, by whichever hand, with the policy as it was. One that people delete
// while the daemon is about to counts as the daemon's, also if they changed the policy right before that: the response to
// its request does not tell by whose hand the object went.
func (w *worker) letGo(s *state, was *etcd, byDaemon bool) {
	for cell, before := range was.volumes {
		now := s.api.volumes[cell]
		if before == now {
			continue
		}
		if s.daemon.task != 0 && s.daemon.cache == 0 && now.exists && w.tree.stays(now) {
			s.stays |= 1 << cell
		}
		_, claimed := s.api.claimOf(cell)
		decided := byDaemon && !before.retain && !(claimed && before.ref)
		gone := !now.exists || now.deleting && !now.finalizer
		s.off[cell] = s.off[cell] && !now.finalizer || decided && before.finalizer && !now.finalizer
		s.consent[cell] = s.consent[cell] || gone && (decided && !before.deleting ||
			s.off[cell] && !before.retain || w.removes(s, cell) && (s.off[cell] || !claimed && !before.finalizer))
	}
}

// removes reports whether the daemon is at work on a volume object.
func (w *worker) removes(s *state, cell int) bool {
	n := w.tree.node(s.daemon.task)
	return n != nil && n.root.kind == controller.WorkVolume && n.root.cell == cell
}

// die ends the daemon.
func (s *state) die() {
	s.daemon, s.stays = daemon{archive: s.daemon.archive}, 0
	s.settled()
}

// start starts the daemon: its watches are complete and its pool was checked before it works.
func (w *worker) start(s *state) {
	s.daemon = daemon{up: true, open: s.mounted, archive: s.daemon.archive}
	w.idle(s)
}
