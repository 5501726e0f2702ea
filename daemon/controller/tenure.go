package controller

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

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

	mu      sync.Mutex
	lease   *plan.Lease   // as it was last seen
	changed time.Duration // when that was, by the clock
	term    *plan.Term    // that this process holds
	speaks  bool          // in that term it only speaks
	trusted time.Duration // until when, by the clock, it may count on that
	other   string        // plan.LeaseFacts.OtherStorage
}

func newTenure() *tenure { return &tenure{look: make(chan struct{}, 1), changed: clock()} }

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

// Worker is the holder of a shared pool's lease, as it was last seen, if it works in the pool: "" where
// nobody does, and for pools that are not shared.
func (c *Controller) Worker(pool string) (holder string) {
	r := c.rooms[pool]
	if r == nil || r.tenure == nil {
		return ""
	}
	r.tenure.mu.Lock()
	defer r.tenure.mu.Unlock()
	if l := r.tenure.lease; l != nil && !l.Speaks {
		return l.Holder
	}
	return ""
}

// fence asks the API whether this daemon still holds the lease, in the same term. A holder that was
// paused learns here that it is one no more.
func (c *Controller) fence(ctx context.Context, r *room) error {
	if r.tenure == nil {
		return nil
	}
	if !r.leads() {
		return ErrNotLeading
	}
	lease, err := c.API.ReadLease(ctx, plan.LeaseName(c.Provisioner, r.Name))
	if err != nil {
		return err
	}
	r.tenure.mu.Lock()
	defer r.tenure.mu.Unlock()
	if lease == nil || r.tenure.term == nil || lease.Term != *r.tenure.term || lease.Holder != c.Identity || lease.Speaks {
		r.tenure.term = nil
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

// saw notes a lease, unless it is older than what is known already: a watch lags behind our own writes.
func (t *tenure) saw(lease *plan.Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if lease != nil && t.lease != nil && lease.Term.UID == t.lease.Term.UID && !later(lease.Version, t.lease.Version) {
		return
	}
	t.lease, t.changed = lease, clock()
	if t.term != nil && (lease == nil || lease.Term != *t.term) {
		t.term = nil
	}
}

// later compares resource versions, which are numbers that only grow (Kubernetes 1.35, KEP-5504).
func later(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX != nil || errY != nil || x > y
}

// keepLease looks after the lease of one pool until ctx ends.
func (c *Controller) keepLease(ctx context.Context, r *room) {
	for ctx.Err() == nil {
		timer := time.NewTimer(c.tend(ctx, r))
		select {
		case <-ctx.Done():
		case <-r.tenure.look:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// tend decides once about a lease and does it, and answers when to look again.
func (c *Controller) tend(ctx context.Context, r *room) time.Duration {
	facts := c.leaseFacts(r)
	c.sayOther(r, facts)
	action, after := plan.ForLease(facts)
	if action == plan.LeaseStand {
		return after
	}
	began, silent := clock(), r.silent()
	now, err := c.API.WriteLease(ctx, c.wanted(r, facts, action))
	if err == nil && now == nil { // somebody else wrote; a watch that broke would never tell
		if now, err = c.API.ReadLease(ctx, plan.LeaseName(c.Provisioner, r.Name)); err == nil {
			r.tenure.saw(now)
			return time.Second
		}
	}
	if err != nil {
		c.leaseTrouble(r, err)
		return time.Second
	}
	c.ledger.forget("lease/" + r.Name)
	r.tenure.wrote(now, action, began)
	c.turned(r, action, silent)
	return after
}

func (c *Controller) leaseFacts(r *room) plan.LeaseFacts {
	state := c.Gate.State(r.Name)
	r.tenure.mu.Lock()
	defer r.tenure.mu.Unlock()
	f := plan.LeaseFacts{
		Lease: r.tenure.lease, Me: c.Identity, Node: c.Node, Term: r.tenure.term,
		Able: state.Removable(), Marker: state.Report.Marker, Quiet: clock() - r.tenure.changed,
	}
	r.tenure.other = ""
	if f.Able {
		r.tenure.other = f.OtherStorage()
	}
	return f
}

// wanted is the lease as an action leaves it. Every change of hands begins a new term.
func (c *Controller) wanted(r *room, f plan.LeaseFacts, action plan.LeaseAction) plan.Lease {
	l := plan.Lease{}
	if f.Lease != nil {
		l = *f.Lease
	}
	l.Name, l.Pool = plan.LeaseName(c.Provisioner, r.Name), r.Name
	switch action {
	case plan.LeaseTake:
		l.Holder, l.Speaks, l.Marker = c.Identity, false, f.Marker
		l.Term.Number++
	case plan.LeaseSpeak:
		l.Holder, l.Speaks = c.Identity, true
		l.Term.Number++
	case plan.LeaseLeave:
		l.Holder, l.Speaks = "", false
	}
	return l
}

// wrote notes our own write. It is trusted from when it was begun, not from when it was answered.
func (t *tenure) wrote(now *plan.Lease, action plan.LeaseAction, began time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lease, t.changed = now, clock()
	switch action {
	case plan.LeaseTake, plan.LeaseSpeak:
		t.term, t.speaks = &now.Term, action == plan.LeaseSpeak
	case plan.LeaseLeave:
		t.term = nil
	}
	t.trusted = began + plan.LeaseTrust
}

// turned goes on with the work that a new role brings, and with what was left while renewals failed
// and this daemon was silent.
func (c *Controller) turned(r *room, action plan.LeaseAction, silent bool) {
	switch action {
	case plan.LeaseTake:
		c.Log.Info("works in the pool for all nodes from now on", "pool", r.Name)
	case plan.LeaseSpeak:
		c.Log.Info("speaks for the pool, in which no node can work", "pool", r.Name)
	case plan.LeaseLeave:
		c.Log.Info("leaves the work in the pool to another node", "pool", r.Name)
		return
	default:
		if !silent {
			return
		}
	}
	signal(r.recheck)
	c.requeueVolumes(r)
	c.requeueClaims(r.Name)
}

// sayOther tells once that the storage here is not that of the other nodes.
func (c *Controller) sayOther(r *room, f plan.LeaseFacts) {
	message := ""
	if f.Able {
		message = f.OtherStorage()
	}
	if message == "" {
		c.ledger.forget("other/" + r.Name)
		return
	}
	message = fmt.Sprintf("pool %s: %s", r.Name, message)
	if c.ledger.news("other/"+r.Name, message) {
		c.Log.Warn(message, "reason", plan.ReasonOtherStorage, "pool", r.Name)
		c.Speaker.Event(nodeRef(c.Node), corev1.EventTypeWarning, plan.ReasonOtherStorage, message)
	}
}

// leaseTrouble tells what keeps this daemon from the lease. An API that is away is told by package kube.
func (c *Controller) leaseTrouble(r *room, err error) {
	if permanent(err) && c.ledger.news("lease/"+r.Name, err.Error()) {
		c.Log.Warn(err.Error(), "reason", plan.ReasonAPIRefused, "pool", r.Name)
		c.Speaker.Event(nodeRef(c.Node), corev1.EventTypeWarning, plan.ReasonAPIRefused, err.Error())
	}
}

// resign gives up the leases that are held, when the daemon ends and its work has ended.
func (c *Controller) resign() {
	for _, r := range c.rooms {
		if r.tenure == nil {
			continue
		}
		f := c.leaseFacts(r)
		if f.Term == nil || f.Lease == nil || f.Lease.Term != *f.Term {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		if now, err := c.API.WriteLease(ctx, c.wanted(r, f, plan.LeaseLeave)); err == nil && now != nil {
			r.tenure.wrote(now, plan.LeaseLeave, 0)
		}
		cancel()
	}
}
