package model

import (
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
)

// worker plays steps. Each has controllers and a directory of its own, and all share what was
// learned.
type worker struct {
	tree      *tree
	product   *product
	workshop  *workshop
	elections map[uint8]*election // by holder
	elected   map[electing]elected
	mirrors   mirrors
	apart     bool // mirrors are not merged
}

func newWorker(t *tree, w *workshop) *worker {
	return &worker{
		tree: t, product: newProduct(t), workshop: w,
		elections: map[uint8]*election{}, elected: map[electing]elected{},
	}
}

// image is what a filesystem has in a state.
func (w *worker) image(s *state, store int) *image { return w.tree.disks.images.value(s.disks[store]) }

// on is what a cell's pool has of it, that of the first node if each has one.
func (w *worker) on(s *state, cell int) onFile { return w.part(s, 0, cell) }

// view is what a daemon's watches have.
func (w *worker) view(s *state, node int) etcd {
	if cache := s.daemons[node].cache; cache != 0 {
		return w.tree.etcds.value(cache)
	}
	return s.reached()
}

// reached is what the API server has that daemons reach.
func (s *state) reached() etcd {
	if s.other {
		return etcd{}
	}
	return s.api
}

// job is a piece of work.
type job struct {
	kind controllers.Kind
	pool int
	cell int // of the claim or the volume
}

// begin has an idle daemon begin a piece of work.
func (w *worker) begin(s *state, node int, j job) {
	d := &s.daemons[node]
	r := root{job: j, setting: d.setting, memory: d.memory, open: d.open[j.pool], seen: s.seenIn(node, j.pool), role: d.roleIn(j.pool)}
	d.barred = w.bars(s, node)
	w.advance(s, node, w.tree.begin(r, w.product))
}

// roleIn is the role in a pool, as far as there are roles.
func (d *daemon) roleIn(pool int) role {
	if pool != sharedPool || d.single {
		return standing
	}
	return d.elector.role()
}

// advance goes on to the next step that is not local, or to the end of the work.
func (w *worker) advance(s *state, node int, at *place) {
	d := &s.daemons[node]
	for at.asks.kind.local() {
		r := w.local(s, node, at.asks)
		r.role = d.roleIn(at.root.pool)
		at = w.tree.responded(at, r, w.product)
	}
	if at.asks.kind != ended {
		d.task = at.id
		return
	}
	d.task, d.memory, d.fenced, d.going, d.barred, d.elsewhere = 0, at.memory, false, 0, 0, at.elsewhere
	d.look.looked = false
	w.idle(s)
}

// idle lets the watches bring what they have to the idle daemons, and forgets what only work in
// flight can tell.
func (w *worker) idle(s *state) {
	s.settled()
	for node := range s.daemons {
		d := &s.daemons[node]
		if !d.up || d.cache != 0 || d.task != 0 || d.held {
			continue
		}
		d.stays = 0
		for cell, v := range w.view(s, node).volumes {
			if v = v.watched(); s.concerns(node, cell) {
				if !s.watches(node, v) {
					v = object{}
				}
				d.memory = w.tree.sees(d.memory, cell, v, w.product)
			}
		}
	}
}

func (w *worker) local(s *state, node int, o op) response {
	view := w.view(s, node)
	switch o.kind {
	case cachedClaim:
		return response{claim: view.claims[o.at]}
	case cachedVolume:
		if v := view.volumes[o.at].watched(); s.watches(node, v) {
			return response{volume: v}
		}
		return response{}
	case cachedContent:
		return response{content: view.snapshot}
	case tells:
		s.told |= 1 << o.at
		return response{}
	case cachedCluster:
		return response{yes: s.other}
	default:
		return response{yes: s.daemons[node].cache == 0}
	}
}

// step does what a daemon's work asks for next, and lets the work go on with the response.
func (w *worker) step(s *state, node int) {
	at := w.tree.place(s.daemons[node].task)
	r := w.serve(s, node, at.asks)
	w.goOnWith(s, node, at, r)
}

// goOnWith lets the work go on with a response, before which the watch brought what it had.
func (w *worker) goOnWith(s *state, node int, at *place, r response) {
	d := &s.daemons[node]
	r.stays, r.role, d.stays = d.stays, d.roleIn(at.root.pool), 0
	r.memory, d.beside = d.beside, 0
	r.gate, d.look.looked = s.news(node, at.root.pool), false
	w.advance(s, node, w.tree.responded(at, r, w.product))
}

// serve does what a step of a daemon asks for.
func (w *worker) serve(s *state, node int, o op) response {
	s.hastens(node, o)
	switch o.kind {
	case fewVolumes:
		return w.tree.listed(etcd{kept: s.reached().kept})
	case fewPods:
		return w.tree.listed(etcd{pods: s.reached().pods})
	case onDisk:
		pool := int(o.disk.pool)
		store := storeOf(pool, node)
		done := w.calls(s, node, o.disk)
		if done == nil {
			return response{disk: w.tree.disks.result(moved)}
		}
		s.rogue = s.rogue || pool == sharedPool && o.disk.destroys() && done.image != s.disks[store] && !s.daemons[node].fenced && !s.daemons[node].single
		w.counts(s, node, o.disk)
		w.put(s, store, done.image)
		return response{disk: done.result}
	case readLease:
		return response{yes: w.fence(s, node)}
	case eachVolume:
		now := s.reached().unversioned()
		now.tombs = [cells]tomb{}
		return w.tree.listed(now)
	}
	if s.other {
		none := s.reached()
		return none.serve(o)
	}
	before := s.api
	r := s.api.serve(o)
	w.letGo(s, &before, node)
	s.decides(node, o, r)
	s.withdraws(o, before.snapshot)
	return r
}

// calls is what a daemon's call to a pool comes to, nil where the pool is away.
func (w *worker) calls(s *state, node int, c call) *outcome {
	d, pool := &s.daemons[node], int(c.pool)
	if id := d.run; id != 0 {
		d.run = 0
		return w.tree.disks.goOn(id, w.workshop)
	}
	if !s.reaches(node, c) {
		return nil
	}
	c.on = 0
	done := w.tree.disks.do(s.disks[storeOf(pool, node)], c, w.workshop)
	if done.image != s.disks[storeOf(pool, node)] {
		w.meanwhile(s, pool, run{other: c})
	}
	return done
}

// put notes what is on a pool's disk now. A directory that is new has nothing that was let go, and
// one that was put back is to stay. One that was empty and had neither object nor claim, or whose
// claim was bound to another one, may go.
func (w *worker) put(s *state, store int, id uint32) {
	if id == s.disks[store] {
		return
	}
	was, node := w.image(s, store), max(0, store-everyPool)
	s.disks[store] = id
	if s.snapshots && store == nodePool {
		s.takes(w.image(s, store).snapshot)
	}
	for cell, now := range w.image(s, store).cells {
		consent := &s.consent[node][cell]
		switch before := was.cells[cell]; {
		case before.place == nowhere && now.place != nowhere:
			s.off[cell], *consent, s.wrote[node][cell] = false, false, false
		case before.place != inPool && before.place != emptying && now.place == inPool:
			s.off[cell], *consent = false, false
		case before.place == inPool && now.place == nowhere && before.data == "":
			c, claimed := s.api.claimOf(cell)
			*consent = *consent || !claimed && !s.api.volumes[cell].exists || claimed && c.elsewhere
		case store >= everyPool && before.whole() && !now.whole():
			*consent = s.daemons[node].going>>cell&1 == 1
		}
	}
}

// others is no node: people and the controllers of the cluster.
const others = -1

// letGo notes what became of objects by the hand of a node's daemon or of others: whether the
// daemon took its finalizer off one with policy Delete whose claim is gone, and whether that object
// was deleted then, by whichever hand, with the policy as it was. One that people delete while the
// daemon is about to counts as the daemon's, also if they changed the policy right before that: the
// response to its request does not tell by whose hand the object went.
func (w *worker) letGo(s *state, was *etcd, by int) {
	for cell, before := range was.volumes {
		now := s.api.volumes[cell]
		if before == now || s.poolOf(cell) == everyPool {
			s.keeps(cell, before, now, by)
			continue
		}
		if now.watched().exists && w.tree.stays(now) {
			w.bring(s, cell)
		}
		_, claimed := s.api.claimOf(cell)
		decided := by != others && !before.retain && !(claimed && before.ref)
		gone := !now.exists || now.deleting && !now.finalizer
		s.off[cell] = s.off[cell] && !now.finalizer || decided && before.finalizer && !now.finalizer
		s.consent[0][cell] = s.consent[0][cell] || gone && (decided && !before.deleting ||
			s.off[cell] && !before.retain || w.removes(s, cell) && (s.off[cell] || !claimed && !before.finalizer))
		s.spare.consent[cell] = s.exchanges() && (s.spare.consent[cell] || s.consent[0][cell]) // whichever filesystem has the data
	}
}

// bring has the watches bring that a volume is to stay to the daemons that are at work.
func (w *worker) bring(s *state, cell int) {
	for node := range s.daemons {
		if d := &s.daemons[node]; d.task != 0 && d.cache == 0 && s.concerns(node, cell) && s.watches(node, s.api.volumes[cell]) {
			d.stays |= 1 << cell
		}
	}
}

// removes reports whether a daemon is at work on a volume object.
func (w *worker) removes(s *state, cell int) bool {
	for node := range s.daemons {
		if at := w.tree.place(s.daemons[node].task); at != nil && at.root.kind == controllers.WorkVolume && at.root.cell == cell {
			return true
		}
	}
	return false
}

// die ends a node's daemon.
func (s *state) die(node int) {
	d := s.daemons[node]
	s.daemons[node] = daemon{exists: d.exists, off: d.off, boot: d.boot, setting: d.setting}
	s.settled()
}

// starts makes it a process whose watches are complete and whose pools were checked.
func (w *worker) starts(s *state, node int) {
	d := &s.daemons[node]
	d.up = true
	for pool := range pools {
		d.open[pool] = w.mayOpen(s, d, pool)
	}
	d.look.seen = s.inPlace
}
