package model

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
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

// late is a request that a daemon gave up and that the API server has not served yet. The response
// goes nowhere.
type late struct {
	at   uint32 // the place in the tree of what it asks for, 0 for none
	node uint8
}

// unwaited is what an order says behind a request that its daemon gives up before it is served.
const unwaited = ", and it is given up"

// givesUp has the API server keep a request that a daemon gives up.
func (w *worker) givesUp(s state, node int, at *place, visit func(move, state)) {
	if !at.asks.kind.writes() || s.late.at != 0 || !s.spend(lates) {
		return
	}
	s.late = late{at.id, uint8(node)}
	w.goOnWith(&s, node, at, response{fault: lost})
	visit(move{event: -1, node: node, op: at.asks, what: unwaited}, s)
}

// servedLate: the API server serves it, whatever became of its daemon.
func servedLate(w *worker, s *state, _ int) bool {
	was := s.late
	if was.at == 0 {
		return false
	}
	s.late = late{}
	w.serve(s, int(was.node), w.tree.place(was.at).asks)
	return true
}

// run is a call to the shared pool that was stopped after one of its steps, with its process, or
// what happened to the pool since. The descriptors that such a call has open are in no content of
// the pool: it is played from its beginning when it goes on.
type run struct {
	before uint32 // the run without its last change; 0: the call was stopped just now
	image  uint32 // on which the call was made
	call   call
	step   int  // after which it was stopped
	other  call // that changed the pool since
	wrote  int  // or the cell that a pod wrote to
}

// stops returns the runs in which a call on an image is stopped, one for each of its steps.
func (d *disks) stops(image uint32, c call, o *outcome) (all []uint32) {
	for n := range o.steps {
		r := run{image: image, call: c, step: n}
		all = append(all, 1+d.runs.of(r, r))
	}
	return all
}

// since returns a run to whose pool something happened.
func (d *disks) since(id uint32, change run) uint32 {
	change.before = id
	return 1 + d.runs.of(change, change)
}

// goOn lets a call that was stopped go on to its end.
func (d *disks) goOn(id uint32, w *workshop) *outcome {
	return d.ended.of(id, func() *outcome { return w.goOn(d, id) })
}

// goOn plays a call on a real directory, up to the step after which it was stopped, what happened
// since, and the rest.
func (w *workshop) goOn(d *disks, id uint32) *outcome {
	var changes []run
	r := d.runs.value(id - 1)
	for ; r.before != 0; r = d.runs.value(r.before - 1) {
		changes = append([]run{r}, changes...)
	}
	w.write(d.images.value(r.image).files)
	n, reached, further, done := 0, make(chan struct{}), make(chan struct{}), make(chan result)
	pool := w.pool(r.call, func(string) {
		if n++; n == r.step+1 {
			close(reached)
			<-further
		}
	})
	go func() { done <- w.call(d, pool, r.call) }()
	<-reached
	for _, change := range changes {
		if change.other.name != "" {
			w.call(d, w.pool(change.other, nil), change.other)
			continue
		}
		check(os.WriteFile(filepath.Join(w.path, nameOf(change.wrote), "data"), []byte(uidOf(change.wrote)), 0o600))
	}
	close(further)
	end := <-done
	return &outcome{image: d.image(w.read()), result: d.result(end)}
}

// pool is the store that a call is made with, each time a new one: its process has made no other
// call.
func (w *workshop) pool(c call, atStep func(string)) *volume.Pool {
	return volume.New(volume.Options{Name: poolNames[c.pool], Path: w.path, HostID: c.hostID(), AtStep: atStep})
}

// meanwhile notes for the calls that are stopped in a pool that something happened to it.
func (w *worker) meanwhile(s *state, pool int, change run) {
	for node := range s.daemons {
		if d := &s.daemons[node]; d.run != 0 && pool == sharedPool {
			d.run = w.tree.disks.since(d.run, change)
		}
	}
}

// stopped are the moves by which a daemon is stopped in a call.
func (w *worker) stopped(s state, node int, o op, visit func(move, state)) {
	if o.kind != onDisk || o.disk.pool != sharedPool || !s.mounted[node][sharedPool] || !s.spend(stops) {
		return
	}
	done := w.tree.disks.do(s.disks[sharedPool], o.disk, w.workshop)
	for n, id := range w.tree.disks.stops(s.disks[sharedPool], o.disk, done) {
		after := s
		after.daemons[node].run = id
		w.put(&after, sharedPool, done.steps[n].image)
		visit(move{event: -1, node: node, op: o, what: fmt.Sprintf(", and is stopped after the step %q", done.steps[n].step)}, after)
	}
}

// stranger is a call that makes a volume's directory, and after which of its steps people make one
// under the same name.
type stranger struct {
	asked
	step int
}

// besides are the moves by which people make a directory under a volume's name while the daemon
// makes the volume: between its look at the name and the rename, and at each other step of the
// call.
func (w *worker) besides(s state, node int, at *place, visit func(move, state)) {
	o := at.asks
	if o.kind != onDisk || o.disk.name != "Create" || o.disk.pool != nodePool || !s.mounted[node][nodePool] || s.people || !s.spend(strangers) {
		return
	}
	s.people = true
	steps := w.tree.disks.do(s.disks[nodePool], o.disk, w.workshop).steps
	for n, step := range steps {
		after := s
		done := w.tree.disks.beside(stranger{asked{s.disks[nodePool], o.disk}, n}, w.workshop)
		w.put(&after, nodePool, done.image)
		if !w.on(&after, o.disk.cell).people {
			continue // the name is the volume's by then
		}
		w.goOnWith(&after, node, at, response{disk: done.result})
		visit(move{event: -1, node: node, op: o, what: fmt.Sprintf(", and people make a directory under its name after the step %q", step.step)}, after)
	}
}

// beside is what such a call makes of an image.
func (d *disks) beside(of stranger, w *workshop) *outcome {
	return d.beset.of(of, func() *outcome { return w.beside(d, of) })
}

func (w *workshop) beside(d *disks, of stranger) *outcome {
	w.write(d.images.value(of.image).files)
	n := 0
	pool := w.pool(of.call, func(string) {
		if n++; n == of.step+1 {
			check(w.settles(filepath.Join(w.path, d.specs.value(of.call.spec).Directory)))
		}
	})
	result := d.result(w.call(d, pool, of.call))
	return &outcome{image: d.image(w.read()), result: result}
}

// settles has people make a directory, if the name is free.
func (w *workshop) settles(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return errors.Join(err, os.WriteFile(filepath.Join(dir, "data"), []byte(byPeople), 0o600))
}
