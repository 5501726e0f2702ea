package model

import (
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

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
	key := sight{memory, cell, v}
	t.mu.RLock()
	after, known := t.sights[key]
	t.mu.RUnlock()
	if known {
		return after
	}
	c := p.controller(setting{})
	p.stopped = true
	c.Remember(t.memories.value(memory))
	if v.exists {
		c.VolumeChanged(nil, volumeObject(cell, v))
	} else {
		c.VolumeChanged(volumeObject(cell, object{in: everyPool}), nil)
	}
	after = t.remember(c.Memory())
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sights[key] = after
	return after
}

// stays reports whether an object says that its volume is not to go.
func (t *tree) stays(v object) bool {
	v.version = 0
	t.mu.RLock()
	stays, known := t.staying[v]
	t.mu.RUnlock()
	if known {
		return stays
	}
	stays = !plan.Going(volumeObject(0, v))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.staying[v] = stays
	return stays
}

// later returns what a daemon knows after a while: what it made just now it made long ago.
func (t *tree) later(memory uint32) uint32 {
	m := t.memories.value(memory)
	return t.remember(controllers.Memory{Begun: m.Begun, Unpublished: m.Unpublished, Promised: m.Promised, Copies: m.Copies, Detached: longDetached(m)})
}
