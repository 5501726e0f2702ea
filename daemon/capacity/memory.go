package capacity

import (
	"maps"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Memory is what an account knows: of which directory's records, and what is promised to each volume.
type Memory struct {
	Known   bool
	Of      mounts.Identity
	Volumes map[string]Promise
}

// Memory returns what the account knows. What a call takes that has not ended is in it.
func (a *Account) Memory() Memory {
	a.book.mu.Lock()
	defer a.book.mu.Unlock()
	return Memory{a.known, a.of, maps.Clone(a.volumes)}
}

// Remember puts this in the place of what the account knows. No call may be in it meanwhile.
func (a *Account) Remember(m Memory) {
	a.book.mu.Lock()
	defer a.book.mu.Unlock()
	a.known, a.of, a.volumes = m.Known, m.Of, maps.Clone(m.Volumes)
	if a.volumes == nil {
		a.volumes = map[string]Promise{}
	}
	a.flights = map[string]*flight{}
	a.total()
}
