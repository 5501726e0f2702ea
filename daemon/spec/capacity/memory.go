package capacity

import (
	"maps"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Memory is what an account knows: of which directory's records, and what is promised to each
// volume.
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

// Remember puts this in the place of what the account knows. Calls and counts that have not ended
// take it as made by others.
func (a *Account) Remember(m Memory) {
	a.book.mu.Lock()
	defer a.book.mu.Unlock()
	a.known, a.of = m.Known, m.Of
	for volume := range maps.Clone(a.volumes) {
		if _, held := m.Volumes[volume]; !held {
			a.set(volume, Promise{})
		}
	}
	for volume, p := range m.Volumes {
		if a.volumes[volume] != p {
			a.set(volume, p)
		}
	}
	a.total()
}
