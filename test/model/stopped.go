package model

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
)

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
	d.mu.RLock()
	o := d.ended[id]
	d.mu.RUnlock()
	if o != nil {
		return o
	}
	o = w.goOn(d, id)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended[id] = o
	return o
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
