// Package capacity keeps account of what pools have promised: a claim's size is kept for its
// volume, whether or not the volume uses it.
//
// An Account is one pool's. It is asked, and takes, in one step (Take), so that no two creations
// are given the same bytes. The truth is the records on the disk: a Count replaces the account by
// what was read of them, except for what changed while they were read. Accounts of pools on one
// filesystem share what is free there, so all of a daemon's are in one Book.
//
// The package reads no disk and does not know what a volume is (package disk does both). It imports
// no other package of this project but hostcheck/mounts.
package capacity

import (
	"fmt"
	"maps"
	"math"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Space is a pool's filesystem at one look, and what is to be kept of it. Sizes are in bytes.
type Space struct {
	Device     string  // of the filesystem; pools with the same share it. "" is shared with none
	Size       uint64  // statfs(2) f_blocks
	RootOnly   uint64  // free for root alone: f_bfree less f_bavail
	Available  uint64  // f_bavail
	Reserve    uint64  // kept free
	Overcommit float64 // how many times the filesystem may be promised, more than 0
}

// Room is what a pool has for new volumes, in bytes.
type Room struct {
	Free      uint64 // what one more volume can get
	Available uint64 // what is available on the filesystem now, less the reserve
	Promised  uint64 // to volumes on the filesystem, of this pool and of others
	// Largest are the volumes of this pool to which most is promised, the largest first. It is not
	// filled in by Space.Room.
	Largest [3]Held
}

// Held is what is promised to a volume.
type Held struct {
	Volume string
	Bytes  uint64
}

// Room is what is left of the space when so much of it is promised: no more than is available now,
// and no more than was not promised. What the filesystem has in use beyond all promises is used by
// others. Without quotas it is not known which volume uses how much, so a volume that uses more
// than its size is taken for them.
func (s Space) Room(promised uint64) Room {
	usable := less(s.Size, s.RootOnly)
	others := less(less(usable, s.Available), promised)
	available := less(s.Available, s.Reserve)
	return Room{
		Free:      min(available, less(less(times(less(usable, s.Reserve), s.Overcommit), promised), others)),
		Available: available, Promised: promised,
	}
}

// Over reports whether more of the space is promised than may be.
func (s Space) Over(promised uint64) bool {
	usable := less(s.Size, s.RootOnly)
	others := less(less(usable, s.Available), promised)
	return Plus(promised, others) > times(less(usable, s.Reserve), s.Overcommit)
}

// less is a-b, never below zero.
func less(a, b uint64) uint64 { return a - min(a, b) }

// Plus is a+b, the largest number if that is more.
func Plus(a, b uint64) uint64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxUint64
}

// times is n*factor. A factor of 1 is exact.
func times(n uint64, factor float64) uint64 {
	product := float64(n) * factor
	switch {
	case factor == 1:
		return n
	case !(product > 0): // not a number, too
		return 0
	case product >= math.MaxUint64:
		return math.MaxUint64
	default:
		return uint64(product)
	}
}

// FullError is why a volume was given no space.
type FullError struct {
	Room
	Asked uint64 // bytes
}

func (e *FullError) Error() string {
	return fmt.Sprintf("%d bytes are requested, and %d can be had: %d are free, %d are promised", e.Asked, e.Free, e.Available, e.Promised)
}

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
	wake.Signal(a.book.changed)
	c.end()
}
