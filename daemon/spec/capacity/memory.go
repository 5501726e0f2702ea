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
	// Reserved are the volumes whose promise is reserved, and what calls for them came to.
	Reserved map[string]Ended
}

// Memory returns what the account knows. What a call takes that has not ended is in it.
func (a *Account) Memory() Memory {
	a.book.mu.Lock()
	defer a.book.mu.Unlock()
	m := Memory{a.known, a.of, maps.Clone(a.volumes), map[string]Ended{}}
	for volume, f := range a.flights {
		if f.reserved {
			m.Reserved[volume] = f.Ended
		}
	}
	return m
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
	for volume, f := range a.flights {
		if f.reserved = false; f.calls == 0 {
			delete(a.flights, volume)
		}
	}
	for volume, ended := range m.Reserved {
		if a.flights[volume] == nil {
			a.flights[volume] = &flight{}
		}
		a.flights[volume].reserved, a.flights[volume].Ended = true, ended
	}
	a.total()
}
