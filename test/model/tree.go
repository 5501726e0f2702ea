package model

import (
	"context"
	"strings"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// root is what a piece of work begins with. Equal roots and equal responses lead to the same.
type root struct {
	job
	setting
	adoption
	memory uint32
	open   bool // the pool's gate
	seen   seat // by which filesystem it was opened
	role   role // in the shared pool
}

// place is a place in a piece of work: what was responded until here, and what the product asks for
// next.
type place struct {
	id        uint32
	root      root
	responses []response
	asks      op
	memory    uint32 // what the process knows here
	elsewhere bool   // what the daemon knows of its cluster then

	mu   sync.Mutex
	next map[response]*place
}

// tree is the product's work, as far as it was played.
type tree struct {
	mu       sync.RWMutex
	roots    map[root]*place
	places   []*place // by id; that of 0 is none
	memories interned[string, controllers.Memory]
	etcds    interned[etcd, etcd]
	sights   memo[sight, uint32]
	staying  memo[object, bool]
	disks    *disks
}

func newTree(d *disks) *tree {
	t := &tree{roots: map[root]*place{}, places: []*place{nil}, disks: d}
	t.remember(controllers.Memory{})
	t.keep(etcd{claims: [slots]claim{{life: lives}}}) // of id 0, which is none
	return t
}

// begin is the first place of a piece of work.
func (t *tree) begin(r root, p *product) *place {
	t.mu.RLock()
	n := t.roots[r]
	t.mu.RUnlock()
	if n != nil {
		return n
	}
	n = p.play(t, r, nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	if other := t.roots[r]; other != nil {
		return other
	}
	t.roots[r] = t.add(n)
	return n
}

// responded is the place after an response.
func (t *tree) responded(n *place, a response, p *product) *place {
	n.mu.Lock()
	defer n.mu.Unlock()
	if next := n.next[a]; next != nil {
		return next
	}
	responses := append(n.responses[:len(n.responses):len(n.responses)], a)
	next := p.play(t, n.root, responses)
	t.mu.Lock()
	t.add(next)
	t.mu.Unlock()
	if n.next == nil {
		n.next = map[response]*place{}
	}
	n.next[a] = next
	return next
}

// add is called with the lock held.
func (t *tree) add(n *place) *place {
	n.id = uint32(len(t.places))
	t.places = append(t.places, n)
	return n
}

// keep is the number of what an API server has, and listed is that in a response.
func (t *tree) keep(e etcd) uint32     { return t.etcds.of(e, e) }
func (t *tree) listed(e etcd) response { return response{etcd: t.keep(e)} }

func (t *tree) place(id uint32) *place {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.places[id]
}

// interned gives values numbers, by a key: the first one is 0.
type interned[K comparable, V any] struct {
	mu     sync.RWMutex
	ids    map[K]uint32
	values []V
}

func (i *interned[K, V]) of(key K, value V) uint32 {
	i.mu.RLock()
	id, known := i.ids[key]
	i.mu.RUnlock()
	if known {
		return id
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if id, known := i.ids[key]; known {
		return id
	}
	if i.ids == nil {
		i.ids = map[K]uint32{}
	}
	id = uint32(len(i.values))
	i.ids[key], i.values = id, append(i.values, value)
	return id
}

func (i *interned[K, V]) value(id uint32) V {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.values[id]
}

func (i *interned[K, V]) len() int {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return len(i.values)
}

// storage is the pool's directory as the product reaches it. Each call is a step. What no step of
// this world needs is not there.
type storage struct {
	disk.Storage
	p    *product
	pool uint8
	host uint8 // by which daemons of a shared pool tell their files apart
}

// result is what a call returned.
type result struct {
	value any
	err   error
}

func (s storage) ask(id mounts.Identity, name, pv string) result {
	return s.askFor(id, call{name: name, cell: numberOf(pv)})
}

func (s storage) askFor(id mounts.Identity, c call) result {
	c.pool, c.on = s.pool, seat(id.Inode-firstInode)
	if s.pool == sharedPool {
		c.host = s.host
	}
	a, ok := s.p.ask(op{kind: onDisk, at: c.cell, disk: c})
	if !ok {
		return result{err: errStopped}
	}
	return s.p.tree.disks.results.value(a.disk)
}

// valueOf is what a call returned, of its type.
func valueOf[T any](r result) (value T, err error) {
	if v, is := r.value.(T); is {
		value = v
	}
	return value, r.err
}

func (s storage) Create(_ context.Context, id mounts.Identity, spec volume.Spec) (string, error) {
	spec.Copied = nil // it is told to the claim alone
	return valueOf[string](s.askFor(id, call{name: "Create", cell: numberOf(spec.PV), spec: s.p.tree.disks.spec(spec)}))
}

func (s storage) Undo(_ context.Context, id mounts.Identity, pv string) error {
	return s.ask(id, "Undo", pv).err
}

func (s storage) Resize(_ context.Context, id mounts.Identity, pv string, bytes int64) error {
	return s.askFor(id, call{name: "Resize", cell: numberOf(pv), spec: uint32(moreThanOne(bytes))}).err
}

func (s storage) ResizeFrom(
	_ context.Context, id mounts.Identity, pv string, was, bytes int64,
) (bool, error) {
	sizes := moreThanOne(was)*(most+1) + moreThanOne(bytes)
	made := call{name: "ResizeFrom", cell: numberOf(pv), spec: uint32(sizes)}
	return valueOf[bool](s.askFor(id, made))
}

func (s storage) Trash(_ context.Context, id mounts.Identity, pv string) error {
	return s.ask(id, "Trash", pv).err
}

func (s storage) PutBack(_ context.Context, id mounts.Identity, pv, _ string) error {
	return s.ask(id, "PutBack", pv).err
}

func (s storage) Discard(_ context.Context, id mounts.Identity, pv string) error {
	return s.ask(id, "Discard", pv).err
}

func (s storage) Archive(_ context.Context, id mounts.Identity, pv string) error {
	return s.ask(id, "Archive", pv).err
}

func (s storage) Retain(_ context.Context, id mounts.Identity, pv string) error {
	return s.ask(id, "Retain", pv).err
}

func (s storage) Hold(_ context.Context, id mounts.Identity, pv string, held bool) error {
	name := "Unhold"
	if held {
		name = "Hold"
	}
	return s.ask(id, name, pv).err
}

func (s storage) Published(_ context.Context, id mounts.Identity, pv string) error {
	return s.ask(id, "Published", pv).err
}

func (s storage) Purge(_ context.Context, id mounts.Identity, pv string) (volume.Purged, error) {
	return valueOf[volume.Purged](s.ask(id, "Purge", pv))
}

func (s storage) Lookup(_ context.Context, id mounts.Identity, pv string) (record.Record, error) {
	return valueOf[record.Record](s.ask(id, "Lookup", pv))
}

func (s storage) LookupArchived(_ context.Context, id mounts.Identity, pv, _ string) (record.Record, error) {
	return valueOf[record.Record](s.ask(id, "LookupArchived", pv))
}

func (s storage) Exists(_ context.Context, id mounts.Identity, directory string) (bool, error) {
	c := call{name: "Exists", cell: numberOf(strings.TrimPrefix(directory, otherPattern))}
	if strings.HasPrefix(directory, otherPattern) {
		c.spec = 1
	}
	return valueOf[bool](s.askFor(id, c))
}

func (s storage) List(_ context.Context, id mounts.Identity) (volume.Inventory, error) {
	return valueOf[volume.Inventory](s.askFor(id, call{name: "List", cell: -1}))
}

func (s storage) Sweep(_ context.Context, id mounts.Identity) (int, error) {
	return valueOf[int](s.askFor(id, call{name: "Sweep", cell: -1}))
}
