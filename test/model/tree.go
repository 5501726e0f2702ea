package model

import (
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
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
	sights   map[sight]uint32
	staying  map[object]bool
	disks    *disks
}

func newTree(d *disks) *tree {
	t := &tree{roots: map[root]*place{}, sights: map[sight]uint32{}, staying: map[object]bool{}, places: []*place{nil}, disks: d}
	t.remember(controllers.Memory{})
	none := etcd{claims: [slots]claim{{life: lives}}} // of id 0, which is none
	t.etcds.of(none, none)
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
