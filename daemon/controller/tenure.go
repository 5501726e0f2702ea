package controller

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
)

// Of the daemons that have a shared pool, the one that holds its lease works in it.
//
// No lock can stop a daemon that was paused in the middle of a step: it wakes, and the step goes on
// beside the next holder's. So no step relies on the lease alone. What is made is named after a claim's
// UID, which never comes back, and is made by calls of which only one can succeed (link, mkdir). What
// is undone is empty (rmdir). What is destroyed was moved to the trash first, and before each such
// step the lease and the object are read from the API itself. A step that comes too late finds its
// work done, or done and undone, and changes nothing; package volume says so at each of them.

// ErrNotLeading is the answer to work in a shared pool that another daemon works in by now.
var ErrNotLeading = errors.New("another daemon works in the pool")

// tenure is what this daemon knows of a shared pool's lease, and whether it holds it.
type tenure struct {
	look chan struct{} // decide again
	me   string        // Options.Identity

	mu      sync.Mutex
	lease   *plan.Lease   // as it was last seen
	changed time.Duration // when that was, by the clock
	doubt   bool          // what the watch brings is not what is known: read it before the next decision
	term    *plan.Term    // that this process holds
	speaks  bool          // in that term it only speaks
	trusted time.Duration // until when, by the clock, it may count on that
	worked  string        // plan.LeaseFacts.Worked
	wanted  *plan.Lease   // what was written last, whether or not that was answered
	usual   string        // damage that even a lease has that was written just now: an admission webhook adds it
	lost    []string      // plan.LeaseLost, to be told
	other   string        // plan.LeaseFacts.OtherStorage
	since   time.Duration // when that was found first, by the clock
}

func newTenure(me string) *tenure {
	return &tenure{look: make(chan struct{}, 1), me: me, changed: clock()}
}

// leads says whether this daemon works in the pool. Whoever destroys something asks fence instead.
func (r *room) leads() bool {
	if r.tenure == nil {
		return true
	}
	r.tenure.mu.Lock()
	defer r.tenure.mu.Unlock()
	return r.tenure.term != nil && !r.tenure.speaks && clock() < r.tenure.trusted
}

// silent says whether this daemon has nothing to say about the pool's claims and volumes: another one
// works there, or speaks for those that cannot.
func (r *room) silent() bool {
	if r.tenure == nil {
		return false
	}
	r.tenure.mu.Lock()
	defer r.tenure.mu.Unlock()
	return r.tenure.term == nil || clock() >= r.tenure.trusted
}

// why is what keeps this daemon, which speaks for all, from work in the pool: here is what its own
// gate says.
func (r *room) why(here string) string {
	if r.tenure == nil || r.leads() {
		return here
	}
	r.tenure.mu.Lock()
	defer r.tenure.mu.Unlock()
	switch {
	case here == "" && r.tenure.other == "":
		return "no node works in it at the moment"
	case here == "":
		here = r.tenure.other
	}
	return "no node can work in it; here " + here
}

// Worker is the holder of a shared pool's lease, if it works in the pool and was seen to renew: "" where
// none does, and for pools that are not shared.
func (c *Controller) Worker(pool string) (holder string) {
	r := c.rooms[pool]
	if r == nil || r.tenure == nil {
		return ""
	}
	r.tenure.mu.Lock()
	defer r.tenure.mu.Unlock()
	l := r.tenure.lease
	if l == nil || l.Speaks || clock()-r.tenure.changed > plan.LeaseDuration {
		return ""
	}
	return l.Holder
}

// fence asks the API whether this daemon still holds the lease, in the same term. A holder that was
// paused learns here that it is one no more.
func (c *Controller) fence(ctx context.Context, r *room) error {
	if r.tenure == nil {
		return nil
	}
	term := r.tenure.holds()
	if term == nil || !r.leads() {
		return ErrNotLeading
	}
	lease, err := c.API.ReadLease(ctx, plan.LeaseName(c.Provisioner, r.Name))
	if err != nil {
		return err
	}
	r.tenure.mu.Lock()
	defer r.tenure.mu.Unlock()
	if r.tenure.term == nil || *r.tenure.term != *term {
		return ErrNotLeading // it began a new term meanwhile, or lost this one
	}
	if !r.tenure.mine(lease) || lease.Speaks {
		r.tenure.lose(lease)
		r.tenure.doubt = true
		signal(r.tenure.look)
		return ErrNotLeading
	}
	return nil
}

// LeaseChanged is told of a lease as the watch brings it; nil is one that was deleted.
func (c *Controller) LeaseChanged(name string, lease *plan.Lease) {
	for _, r := range c.rooms {
		if r.tenure != nil && plan.LeaseName(c.Provisioner, r.Name) == name {
			r.tenure.saw(lease)
			signal(r.tenure.look)
		}
	}
}

// holds is the term that this process holds, nil if none.
func (t *tenure) holds() *plan.Term {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.term
}

// saw notes a lease as the watch brought it. One that is older than what is known is not taken: a watch lags
// behind our own writes. Or the server's data was restored, and it is what the server has: that is asked.
func (t *tenure) saw(lease *plan.Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if lease != nil && t.lease != nil && lease.Term.UID == t.lease.Term.UID && !later(lease.Version, t.lease.Version) {
		t.doubt = t.doubt || lease.Version != t.lease.Version
		return
	}
	t.note(lease)
}

// read notes a lease as the API answered it, which is the truth whatever was known.
func (t *tenure) read(lease *plan.Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.doubt = false
	t.note(lease)
}

// refused notes what is there in place of what we would have written. The object is not the one that we
// knew, so the term ends, also if it still has our name: a restored server may have given it back to us after
// another daemon held it.
func (t *tenure) refused(lease *plan.Lease) {
	t.read(lease)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.term = nil
}

// note takes a lease for what is there now.
func (t *tenure) note(lease *plan.Lease) {
	was := t.lease
	t.lease = lease
	if was != nil && lease != nil && was.Term.UID == lease.Term.UID && was.Version == lease.Version {
		return // read again: nothing happened
	}
	t.changed = clock()
	if was != nil && lease != nil && was.Term == lease.Term && was.Holder == lease.Holder && lease.Holder != t.me && lease.Marker != t.worked {
		t.worked = "" // another daemon works in another storage, and renews
	}
	if t.term != nil && !t.mine(lease) {
		t.lose(lease)
	}
}

// mine reports whether a lease is held by this process in its term, and in the same role.
func (t *tenure) mine(lease *plan.Lease) bool {
	return t.term != nil && lease != nil && lease.Term == *t.term && lease.Holder == t.me && lease.Speaks == t.speaks
}

// lose ends the term. Others may take the lease only after it ran out, and our own writes come through the
// watch before they are answered; all else was not to be.
func (t *tenure) lose(lease *plan.Lease) {
	ours := t.wanted != nil && lease != nil && lease.Holder == t.wanted.Holder && lease.Term.Number == t.wanted.Term.Number &&
		lease.Term.Token == t.wanted.Term.Token && lease.Speaks == t.wanted.Speaks
	if t.wanted != nil && !ours && clock() < t.trusted {
		t.lost = append(t.lost[:min(len(t.lost), 3)], plan.LeaseLost(t.wanted.Name, lease))
	}
	t.term = nil
}

// later compares resource versions, which are numbers that only grow (Kubernetes 1.35, KEP-5504).
func later(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX != nil || errY != nil || x > y
}

// doubtful reports whether the lease is to be read before the next decision.
func (t *tenure) doubtful() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.doubt
}

// facts are those that are remembered.
func (t *tenure) facts() plan.LeaseFacts {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := plan.LeaseFacts{Lease: t.lease, Term: t.term, Worked: t.worked, Quiet: clock() - t.changed}
	if t.lease != nil && t.lease.Damage == t.usual {
		lease := *t.lease
		lease.Damage, f.Lease = "", &lease
	}
	return f
}

// found notes what keeps this daemon from work although its pool is fine.
func (t *tenure) found(f plan.LeaseFacts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	other := ""
	if f.Able {
		other = f.OtherStorage()
	}
	if t.other == "" {
		t.since = clock()
	}
	t.other = other
}

// wants notes what is about to be written.
func (t *tenure) wants(l plan.Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wanted = &l
}

// wrote notes our own write. It is trusted from when it was begun, not from when it was answered.
func (t *tenure) wrote(now *plan.Lease, action plan.LeaseAction, began time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lease != nil && t.lease.Term.UID == now.Term.UID && later(t.lease.Version, now.Version) {
		t.doubt = true // it was written after us, and the watch was faster than the answer
		return
	}
	t.lease, t.changed, t.usual = now, clock(), now.Damage
	switch action {
	case plan.LeaseTake, plan.LeaseSpeak:
		t.term, t.speaks = &now.Term, action == plan.LeaseSpeak
	case plan.LeaseLeave:
		t.term = nil
	}
	if action == plan.LeaseTake {
		t.worked = now.Marker
	}
	t.trusted = began + plan.LeaseTrust
}
