package model

import (
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/prober"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// In place of a pool's filesystem, of scope node or shared by both nodes, another one can be
// mounted: one with another marker, or a copy of the first one, block by block, at an earlier
// state. Whether the gate opens then is what hostcheck's rules say of the marker. A daemon looks at
// the pool at any time, also while it works.

// filesystem is a kind of filesystem.
type filesystem uint8

const (
	none   filesystem = iota
	marked            // it has another marker
	copied            // it is a copy of the first one
)

// seat is which of the two filesystems of that pool: 0 is its own.
type seat uint8

// firstInode is the inode of a pool's directory, by which the product tells filesystems apart here.
const firstInode = 1

// spare is the filesystem that is not mounted, and what is known of its cells.
type spare struct {
	kind           filesystem
	pool           uint8 // in whose place it can be mounted
	made           bool  // a copy is not there before it was made
	image          uint32
	wrote, consent [cells]bool
}

// look is the last look at the pool whose filesystem can be another one.
type look struct {
	looked bool // since the daemon's work was at its last step
	open   bool
	seen   seat
}

// exchanges reports whether filesystems can be mounted in place of others in this world.
func (s *state) exchanges() bool { return s.spare.kind != none }

// exchange mounts the other filesystem.
func (s *state) exchange() {
	pool := s.spare.pool
	s.disks[pool], s.spare.image = s.spare.image, s.disks[pool]
	s.wrote[0], s.spare.wrote = s.spare.wrote, s.wrote[0]
	s.consent[0], s.spare.consent = s.spare.consent, s.consent[0]
	s.inPlace = 1 - s.inPlace
}

func diskCopied(_ *worker, s *state, _ int) bool {
	if s.spare.kind != copied || s.spare.made || !s.spend(clonings) {
		return false
	}
	s.spare = spare{copied, s.spare.pool, true, s.disks[s.spare.pool], s.wrote[0], s.consent[0]}
	return true
}

func diskSwapped(_ *worker, s *state, _ int) bool {
	there := s.spare.kind == marked || s.spare.made
	if !there || s.inPlace != 0 || !s.mounted[0][s.spare.pool] || !s.spend(swaps) {
		return false
	}
	s.exchange()
	return true
}

func diskBack(_ *worker, s *state, _ int) bool {
	if s.inPlace == 0 {
		return false
	}
	s.exchange()
	return true
}

// reaches reports whether a daemon's call is made in a directory that is mounted, and is the one
// that the gate was opened by.
func (s *state) reaches(node int, c call) bool {
	return s.mounted[node][c.pool] && (c.pool != s.spare.pool || c.on == s.inPlace)
}

// seenIn is by which filesystem the gate of a pool was opened.
func (s *state) seenIn(node, pool int) seat {
	if pool != int(s.spare.pool) {
		return 0
	}
	return s.daemons[node].look.seen
}

// news is what a look has told since the last step of the daemon's work in a pool.
func (s *state) news(node, pool int) look {
	d := &s.daemons[node]
	if !d.look.looked || pool != int(s.spare.pool) {
		return look{}
	}
	return look{looked: true, open: d.open[pool], seen: d.look.seen}
}

// inOrder reports whether a daemon that looks at that pool finds it in order. Where nothing can be
// exchanged it does.
func (s *state) inOrder(d *daemon) bool {
	if !s.exchanges() && !s.twice {
		return true
	}
	mark := markOf(int(s.spare.pool))
	if s.spare.kind == marked && s.inPlace == 1 {
		mark.ID = "another"
	}
	return judged[judgement{d.node, s.spare.pool, mark}]
}

// judgement is a node that finds a marker.
type judgement struct {
	node uint8
	pool uint8
	mark hostcheck.Marker
}

// judged has whether hostcheck finds the pool in order, by what can be found.
var judged = judgements()

func judgements() map[judgement]bool {
	all := map[judgement]bool{}
	for node := range uint8(nodes) {
		for pool := range uint8(everyPool) {
			for _, id := range []string{markerOf(int(pool)), "another"} {
				mark := markOf(int(pool))
				mark.ID = id
				all[judgement{node, pool, mark}] = finds(int(pool), scopes[pool], node, mark)
			}
		}
	}
	return all
}

// finds reports whether a node that remembers the pool's own marker finds a filesystem with this
// one in order.
func finds(pool int, scope string, node uint8, mark hostcheck.Marker) bool {
	p := config.Pool{Name: poolNames[pool], Path: pathOf(pool), MountPoint: pathOf(pool), RequireMount: true, Immutable: config.ImmutableOff, Scope: scope}
	e := prober.Expect(nodeName(int(node)), p, markerOf(pool))
	e.Cluster = clusterID
	at := hostcheck.Entry{Kind: hostcheck.Directory, Identity: mounts.Identity{MountID: 2, DevMajor: 8, Inode: firstInode}, MountID: 2, Mode: 0o755}
	r := hostcheck.Check(e, hostcheck.Facts{
		Mounts:     []mounts.Mount{{ID: 1, Major: 8, Minor: 1, Root: "/", Point: "/", FSType: "ext4"}, {ID: 2, Parent: 1, Major: 8, Minor: 16, Root: "/", Point: pathOf(pool), FSType: "ext4"}},
		MountPoint: at, Path: at, Marker: hostcheck.MarkerFact{Looked: true, Marker: mark},
		Space: hostcheck.Space{Size: 1 << 50, Available: 1 << 50, Inodes: 1 << 20, InodesFree: 1 << 20, Asked: true},
	})
	return r.Removable()
}

func otherDiskStays(s *state, _ onFile, _ int) string {
	if s.spare.kind == marked && (s.inPlace == 0 && s.spare.image != 0 || s.inPlace == 1 && s.disks[s.spare.pool] != 0) {
		return "the other filesystem was changed"
	}
	return ""
}

func oneOwner(s *state, _ onFile, cell int) string {
	if s.twice && cell == 0 && s.daemons[0].open[nodePool] && s.daemons[1].open[nodePool] {
		return "both gates are open"
	}
	if cell == 0 && s.mixed() {
		return "both gates of pool q are open, and one of them is a node's that has the pool alone"
	}
	return ""
}

// sight is a volume object that the watch brings to a daemon.
type sight struct {
	memory uint32
	cell   int
	object object
}

// sees returns what a daemon knows after the watch brought a volume object.
func (t *tree) sees(memory uint32, cell int, v object, p *product) uint32 {
	switch m := t.memories.value(memory); {
	case v.exists && len(m.Begun) == 0:
		return memory // nothing that an object could end
	case !v.exists && !detached(m, cell):
		return memory
	}
	v.version = 0
	return t.sights.of(sight{memory, cell, v}, func() uint32 {
		c := p.controller(setting{})
		p.stopped = true
		c.Remember(t.memories.value(memory))
		if v.exists {
			c.VolumeChanged(nil, volumeObject(cell, v))
		} else {
			c.VolumeChanged(volumeObject(cell, object{in: everyPool}), nil)
		}
		return t.remember(c.Memory())
	})
}

// stays reports whether an object says that its volume is not to go.
func (t *tree) stays(v object) bool {
	v.version = 0
	return t.staying.of(v, func() bool { return !plan.Going(volumeObject(0, v)) })
}

// later returns what a daemon knows after a while: what it made just now it made long ago.
func (t *tree) later(memory uint32) uint32 {
	m := t.memories.value(memory)
	m.Published, m.Detached = nil, longDetached(m)
	return t.remember(m)
}
