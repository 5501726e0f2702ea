package model

import (
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// Two names of claims in one pool can change places: what can follow is the same, with the names
// changed. So of two states that are each other's mirror only one is explored.

// mirrors has the mirror of each thing that has a number. One worker of the model has it.
type mirrors struct{ etcds, images, memories, places, results, runs []uint32 }

// canonical is the hash by which a state is merged with its mirror.
func (w *worker) canonical(s *state) uint64 {
	if w.apart || !s.symmetric() {
		return s.hash()
	}
	m := w.mirror(*s)
	return min(s.hash(), m.hash())
}

// symmetric reports whether the two names are of claims in the same pool, and there are claims of
// both.
func (s *state) symmetric() bool {
	return s.names == 2 && s.in[0] == s.in[1] && !s.clones && !s.snapshots
}

func mirrorCell(cell int) int {
	switch {
	case cell < 0 || cell >= 2*lives:
		return cell
	default:
		return (cell + lives) % (2 * lives)
	}
}

// mirrorCells is a set of cells, one bit each, with the names changed.
func mirrorCells(all uint8) (other uint8) {
	for cell := range cells {
		other |= all >> cell & 1 << mirrorCell(cell)
	}
	return other
}

// renamed changes the names in a text.
var renamed = strings.NewReplacer(slotName(0), slotName(1), slotName(1), slotName(0))

// swapped changes what the two names have.
func swapped[T any](all [cells]T) (other [cells]T) {
	for cell, value := range all {
		other[mirrorCell(cell)] = value
	}
	return other
}

// mirror is the state with the names changed.
func (w *worker) mirror(s state) state {
	s.api = s.api.mirror()
	s.saved, s.adopter, s.late.at = w.mirrorEtcd(s.saved), w.mirrorPlace(s.adopter), w.mirrorPlace(s.late.at)
	s.used[0], s.used[1] = s.used[1], s.used[0]
	s.off, s.kept, s.collected = swapped(s.off), swapped(s.kept), swapped(s.collected)
	s.spare.wrote, s.spare.consent, s.spare.image = swapped(s.spare.wrote), swapped(s.spare.consent), w.mirrorImage(s.spare.image)
	for store, id := range s.disks {
		s.disks[store] = w.mirrorImage(id)
	}
	for node := range s.daemons {
		s.wrote[node], s.consent[node] = swapped(s.wrote[node]), swapped(s.consent[node])
		d := &s.daemons[node]
		d.memory, d.task, d.cache, d.run = w.mirrorMemory(d.memory), w.mirrorPlace(d.task), w.mirrorEtcd(d.cache), w.mirrorRun(d.run)
		d.barred = d.barred>>1&1 | d.barred&1<<1
		d.beside = w.mirrorMemory(d.beside)
		d.stays, d.going = mirrorCells(d.stays), mirrorCells(d.going)
	}
	return s
}

func (e etcd) mirror() etcd {
	e.claims[0], e.claims[1] = e.claims[1], e.claims[0]
	e.volumes, e.tombs = swapped(e.volumes), swapped(e.tombs)
	e.kept[0], e.kept[1] = e.kept[1], e.kept[0]
	return e
}

// known is the mirror of a number, by make if it is asked for the first time. That of 0 is 0.
func known(all *[]uint32, id uint32, make func() uint32) uint32 {
	if id == 0 {
		return 0
	}
	for uint32(len(*all)) <= id {
		*all = append(*all, 0)
	}
	if (*all)[id] == 0 {
		n := make()
		(*all)[id] = n
	}
	return (*all)[id]
}

func (w *worker) mirrorEtcd(id uint32) uint32 {
	return known(&w.mirrors.etcds, id, func() uint32 {
		return w.tree.keep(w.tree.etcds.value(id).mirror())
	})
}

func (w *worker) mirrorImage(id uint32) uint32 {
	return known(&w.mirrors.images, id, func() uint32 {
		f := files{}
		for path, text := range w.tree.disks.images.value(id).files {
			f[renamed.Replace(path)] = renamed.Replace(text)
		}
		return w.tree.disks.image(f)
	})
}

func (w *worker) mirrorMemory(id uint32) uint32 {
	return known(&w.mirrors.memories, id, func() uint32 {
		was := w.tree.memories.value(id)
		return w.tree.remember(controllers.Memory{
			Begun: renamedAll(was.Begun), Published: renamedAll(was.Published), Held: renamedAll(was.Held),
			Promised: mirrorPromised(was.Promised), Unpublished: renamedKeys(was.Unpublished),
			Detached: renamedKeys(was.Detached),
		})
	})
}

// renamedKeys changes the names in the keys.
func renamedKeys[V any](all map[string]V) map[string]V {
	other := map[string]V{}
	for key, value := range all {
		other[renamed.Replace(key)] = value
	}
	return other
}

func renamedAll(all []string) (other []string) {
	for _, text := range all {
		other = append(other, renamed.Replace(text))
	}
	slices.Sort(other)
	return other
}

// mirrorPlace goes the same way in the mirror's work.
func (w *worker) mirrorPlace(id uint32) uint32 {
	return known(&w.mirrors.places, id, func() uint32 {
		at := w.tree.place(id)
		r := at.root
		r.cell, r.memory = mirrorCell(r.cell), w.mirrorMemory(r.memory)
		m := w.tree.begin(r, w.product)
		for _, given := range at.responses {
			given.etcd, given.disk, given.memory = w.mirrorEtcd(given.etcd), w.mirrorResult(given.disk), w.mirrorMemory(given.memory)
			given.stays = mirrorCells(given.stays)
			m = w.tree.responded(m, given, w.product)
		}
		return m.id
	})
}

func (w *worker) mirrorRun(id uint32) uint32 {
	return known(&w.mirrors.runs, id, func() uint32 {
		r := w.tree.disks.runs.value(id - 1)
		r.before, r.image, r.call, r.other = w.mirrorRun(r.before), w.mirrorImage(r.image), w.mirrorCall(r.call), w.mirrorCall(r.other)
		if r.other.name == "" && r.before != 0 {
			r.wrote = mirrorCell(r.wrote)
		}
		return 1 + w.tree.disks.runs.of(r, r)
	})
}

func (w *worker) mirrorCall(c call) call {
	c.cell = mirrorCell(c.cell)
	if c.name == "Create" || c.name == "Adopt" {
		spec := w.tree.disks.specs.value(c.spec)
		spec.Record = mirrorRecord(spec.Record)
		c.spec = w.tree.disks.spec(spec)
	}
	return c
}

func mirrorRecord(r record.Record) record.Record {
	r.PV, r.Claim, r.ClaimUID, r.Directory = renamed.Replace(r.PV), renamed.Replace(r.Claim), renamed.Replace(r.ClaimUID), renamed.Replace(r.Directory)
	return r
}

// mirrorError is an error with the names changed.
type mirrorError struct{ error }

func (m mirrorError) Error() string { return renamed.Replace(m.error.Error()) }
func (m mirrorError) Unwrap() error { return m.error }

func (w *worker) mirrorResult(id uint32) uint32 {
	return known(&w.mirrors.results, id, func() uint32 {
		r := w.tree.disks.results.value(id)
		switch value := r.value.(type) {
		case record.Record:
			r.value = mirrorRecord(value)
		case string:
			r.value = renamed.Replace(value)
		case volume.Inventory:
			r.value = mirrorInventory(value)
		}
		if r.err != nil {
			r.err = mirrorError{r.err}
		}
		return w.tree.disks.result(r)
	})
}

func mirrorInventory(inv volume.Inventory) volume.Inventory {
	inv.Volumes, inv.Archived = mirrorRecords(inv.Volumes), mirrorRecords(inv.Archived)
	slices.SortFunc(inv.Archived, func(a, b record.Record) int { return strings.Compare(a.PV, b.PV) })
	inv.Foreign = renamedAll(inv.Foreign)
	inv.Leftovers = slices.Clone(inv.Leftovers)
	for i := range inv.Leftovers {
		inv.Leftovers[i].Name = renamed.Replace(inv.Leftovers[i].Name)
	}
	slices.SortFunc(inv.Leftovers, func(a, b volume.Leftover) int { return strings.Compare(a.Name, b.Name) })
	return inv
}

func mirrorRecords(all []record.Record) (other []record.Record) {
	for _, r := range all {
		other = append(other, mirrorRecord(r))
	}
	return other
}

// otherOrder is what follows if a daemon looks at the records of a pool in the other order than
// that of their names: it is that order in the mirror.
func (w *worker) otherOrder(s state, node int, at *place, visit func(move, state)) {
	o := at.asks
	if o.kind != onDisk || o.disk.name != "List" || !s.symmetric() {
		return
	}
	done := w.calls(&s, node, o.disk)
	if done == nil {
		return
	}
	r := w.tree.disks.results.value(done.result)
	inv, is := r.value.(volume.Inventory)
	if !is || len(inv.Volumes) < 2 {
		return
	}
	inv.Volumes = slices.Clone(inv.Volumes)
	slices.Reverse(inv.Volumes)
	w.goOnWith(&s, node, at, response{disk: w.tree.disks.result(result{inv, r.err})})
	visit(move{event: -1, node: node, op: o, what: ", in the other order"}, s)
}
