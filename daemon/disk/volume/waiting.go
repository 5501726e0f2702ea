package volume

import (
	"sync/atomic"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// backgroundFactor is how much longer than others a call in the background may take: removing one
// file of many extents takes seconds on a healthy filesystem.
const backgroundFactor = 4

// copyFactor is the same while a volume is copied. To share the blocks of one file is one call, of
// a microsecond or more for each of its extents; to write out all that a copy wrote is another.
// That storage stops responding is noticed by the pool's own looks and by other calls.
const copyFactor = 80

// call is one call under way.
type call struct {
	about      string          // what it is about, for messages
	id         mounts.Identity // where it works
	background atomic.Bool
	copies     atomic.Bool
	patient    atomic.Bool          // it closes no pool, however long it waits
	work       atomic.Pointer[work] // of Purge and of a copy, nil before it begins
	// got is when it began, or the filesystem last replied, in ns since the pool's birth.
	got atomic.Int64
}

// Waiting is a call to which the filesystem has not replied for long.
type Waiting struct {
	About string
	Where mounts.Identity // the directory it works in, which may not be the pool any more
	For   time.Duration   // 0: there is none
	Limit time.Duration   // what it was allowed
}

// Waiting returns the call that is waiting longest, of those that have waited for the limit or
// longer: from its beginning, or since the last of its many entries for Purge, Sweep and List.
// Purges have four times the limit, and copies eighty times. What reads how much volumes take has
// none: one bad directory of a tenant is no reason to close the pool.
func (p *Pool) Waiting(limit time.Duration) (longest Waiting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.calls {
		waited, allowed := time.Since(p.born)-time.Duration(c.got.Load()), limit
		switch {
		case c.patient.Load():
			continue
		case c.copies.Load():
			allowed *= copyFactor
		case c.background.Load():
			allowed *= backgroundFactor
		}
		if waited >= allowed && waited > longest.For {
			longest = Waiting{c.about, c.id, waited, allowed}
		}
	}
	return longest
}

func (p *Pool) enter(about string, id mounts.Identity) *call {
	c := &call{about: about, id: id}
	p.progress(c)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[c] = struct{}{}
	return c
}

func (p *Pool) exit(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, c)
}

// progress notes that the filesystem replies to a call that consists of many.
func (p *Pool) progress(c *call) { c.got.Store(int64(time.Since(p.born))) }
