package capacity

import (
	"maps"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Count is a reading of a pool's records that has begun.
type Count struct {
	account *Account
	of      mounts.Identity
	since   int
}

// Count begins to read the records of this directory. Either Done or Cancel ends it.
func (a *Account) Count(of mounts.Identity) *Count {
	a.book.mu.Lock()
	defer a.book.mu.Unlock()
	a.counts++
	return &Count{account: a, of: of, since: a.moment}
}

// Cancel ends a reading that failed.
func (c *Count) Cancel() {
	c.account.book.mu.Lock()
	defer c.account.book.mu.Unlock()
	c.end()
}

func (c *Count) end() {
	if c.account.counts--; c.account.counts == 0 {
		clear(c.account.touched)
	}
}

// Done replaces the account by what was read. A volume whose promise changed since the reading
// began keeps what the account has, and so does one that is being made: it may have been read
// before or after that. The same holds for the records of these names that cannot be read.
func (c *Count) Done(read map[string]Promise, unreadable ...string) {
	a := c.account
	a.book.mu.Lock()
	defer a.book.mu.Unlock()
	now := maps.Clone(read)
	if now == nil {
		now = map[string]Promise{}
	}
	keep := func(volume string) {
		if p, held := a.volumes[volume]; held {
			now[volume] = p
		} else {
			delete(now, volume)
		}
	}
	for volume, moment := range a.touched {
		if moment > c.since {
			keep(volume)
		}
	}
	for volume := range a.flights {
		keep(volume)
	}
	for _, volume := range unreadable {
		if _, readable := read[volume]; !readable {
			keep(volume)
		}
	}
	a.volumes, a.known, a.of = now, true, c.of
	a.total()
	a.book.tell()
	c.end()
}
