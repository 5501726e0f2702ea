package model

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

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
	d.mu.RLock()
	o := d.beset[of]
	d.mu.RUnlock()
	if o != nil {
		return o
	}
	o = w.beside(d, of)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.beset[of] = o
	return o
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
