package model

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// election is the product's elector of one holder, with ports to the state that it is played in.
// What an elector does about the lease is one step: a write counts only if the lease is still as it
// was decided on.
type election struct {
	*leadership.Elector
	mute
	s    *state
	node int
	loss *loss // of its next request, nil if that has its response
	hurt bool  // that request was sent

	resumed bool // it called Resumed
}

// long is longer than each of the times of a lease.
const long = time.Hour

func newElection(holder uint8) *election {
	e := &election{node: int(holder-1) / 2}
	e.Elector = leadership.New(leadership.Options{
		Pool: poolNames[sharedPool], Provisioner: plan.DefaultProvisioner, Identity: identityOf(holder), Node: nodeName(e.node),
		Leases: e, Storage: e, Events: e, Log: slog.New(slog.DiscardHandler),
		Clock: func() time.Duration { return 2 * long }, Resumed: func() { e.resumed = true }, Requested: func(error) {},
	})
	return e
}

// Usable is part of leadership.Storage.
func (e *election) Usable() (bool, string) {
	return e.s.daemons[e.node].open[sharedPool], markerOf(sharedPool)
}

// Proof is part of leadership.Storage. There is one storage in this world.
func (e *election) Proof(context.Context) leadership.Proof { return "" }

var errNoResponse = errors.New("no response")

// lost notes that a request is sent, and reports whether it is one that does not arrive.
func (e *election) lost() bool {
	e.hurt = e.loss != nil
	return e.hurt && !e.loss.done
}

// ReadLease is part of leadership.Leases.
func (e *election) ReadLease(context.Context, string) (*leadership.Lease, error) {
	if e.loss != nil {
		e.hurt = true
		return nil, errNoResponse
	}
	return e.s.lease.as(), nil
}

// WriteLease is part of leadership.Leases, and what the API server does.
func (e *election) WriteLease(_ context.Context, l leadership.Lease) (*leadership.Lease, error) {
	if e.lost() {
		return nil, errNoResponse
	}
	was, now := e.s.lease, leaseOf(&l)
	if was.exists != (l.Version != "") || was.exists && was.version != now.version {
		return nil, e.result()
	}
	if now.token == fresh {
		now.token = e.s.unused()
	}
	e.s.revision++
	now.version = e.s.revision
	e.s.lease = now
	return now.as(), e.result()
}

func (e *election) result() error {
	if e.loss != nil {
		return errNoResponse
	}
	return nil
}

// unused is a token that no term has.
func (s *state) unused() uint8 {
	most := max(s.lease.token, s.backup.token)
	for node := range s.daemons {
		e := s.daemons[node].elector
		most = max(most, e.known.token, e.term)
	}
	return most + 1
}

// act is what an elector does in one step.
type act uint8

const (
	tend act = iota
	hear
	ask
)

// electing is what an act depends on. Equal ones lead to the same.
type electing struct {
	act
	holder   uint8
	open     bool
	elector  elector
	lease    lease
	revision uint8
	unused   uint8
	loss     loss
}

// elected is what came of it.
type elected struct {
	elector  elector
	lease    lease
	revision uint8
	leads    bool
	sent     bool // the request that was to be lost
	resumed  bool
}

// elect plays a daemon's elector. lost, if it is not nil, is what becomes of its request.
func (w *worker) elect(s *state, node int, a act, lost *loss) elected {
	d := &s.daemons[node]
	key := electing{a, holderOf(node, d.boot), d.open[sharedPool], d.elector, s.lease, s.revision, s.unused(), loss{}}
	if lost != nil {
		key.loss = *lost
	}
	r, known := w.elected[key]
	if !known {
		r = w.plays(*s, node, key, lost)
		w.elected[key] = r
	}
	d.elector, s.lease, s.revision = r.elector, r.lease, r.revision
	if r.resumed {
		w.recounts(s, node)
	}
	return r
}

func (w *worker) plays(s state, node int, key electing, lost *loss) (r elected) {
	e := w.elections[key.holder]
	if e == nil {
		e = newElection(key.holder)
		w.elections[key.holder] = e
	}
	e.s, e.loss, e.hurt, e.resumed = &s, lost, false, false
	e.Remember(key.elector.as())
	switch key.act {
	case tend:
		e.Tend(context.Background())
	case hear:
		e.Changed(leadership.Name(plan.DefaultProvisioner, poolNames[sharedPool]), s.lease.as())
	case ask:
		r.leads = e.Fence(context.Background()) == nil
	}
	r.elector, r.lease, r.revision, r.sent = electorOf(e.Memory()), s.lease, s.revision, e.hurt
	r.resumed = e.resumed
	return r
}

// tends lets a daemon look after the lease. It reports whether something came of it that counts: a
// term that goes on, or not, or that the daemon learned something. That a lease is renewed is
// nothing, as no daemon's time passes by itself. late says that it has heard nothing of the lease
// for long; lost, if it is not nil, is what becomes of its request.
func (w *worker) tends(s *state, node int, late bool, lost *loss) bool {
	before, d := *s, &s.daemons[node]
	if late {
		s.waits(node)
	}
	sent := w.elect(s, node, tend, lost).sent
	if lost == nil && before.renewed(s, node) || lost != nil && !sent {
		*s = before
		return false
	}
	// Fence compares the lease with the term of the moment in which it asked for it.
	at := w.tree.place(d.task)
	return at == nil || at.asks.kind != readLease || d.elector.term == 0 || d.elector.term == before.daemons[node].elector.term
}

// renewed reports whether nothing changed but versions and times.
func (s *state) renewed(after *state, node int) bool {
	was, is := s.daemons[node].elector, after.daemons[node].elector
	was.known.version, is.known.version, was.old = 0, 0, is.old
	a, b := s.lease, after.lease
	a.version, b.version = 0, 0
	return was == is && a == b
}

// hears lets the watch bring the lease to a daemon.
func (w *worker) hears(s *state, node int) {
	if d := &s.daemons[node]; d.up && !d.single && d.cache == 0 && d.elector.known != s.lease {
		w.elect(s, node, hear, nil)
	}
}

// waits lets the times of the lease pass for a daemon that hears nothing of it. It is the only
// clock that there is: no other daemon's time passes meanwhile.
func (s *state) waits(node int) {
	if d := &s.daemons[node]; d.up {
		d.elector.old, d.elector.trusted = true, false
	}
}

// fence is what a daemon is told that asks whether it is the leader still. Its role it has compared
// before it asked.
func (w *worker) fence(s *state, node int) (leads bool) {
	d := &s.daemons[node]
	trusted := d.elector.trusted
	d.elector.trusted = true
	leads = w.elect(s, node, ask, nil).leads
	d.elector.trusted = trusted && d.elector.term != 0
	d.fenced = d.fenced || leads
	return leads
}

// leaseMoves are what can happen between a daemon and the lease.
func (w *worker) leaseMoves(s state, node int, visit func(move, state)) {
	try := func(what string, do func(after *state) bool) {
		after := s
		terms := s.unused()
		if do(&after) && (after.unused() == terms || after.spend(elections)) {
			visit(move{event: -1, i: -1, node: node, what: what}, after)
		}
	}
	try("hears of the lease", func(after *state) bool {
		w.hears(after, node)
		w.tends(after, node, false, nil)
		return *after != s
	})
	after := "looks after the lease, which it has not heard of for long"
	try(after, func(after *state) bool { return w.tends(after, node, true, nil) })
	for _, how := range faults(op{kind: createVolume})[:2] {
		try(after+how.what, func(after *state) bool {
			return after.spend(losses) && w.tends(after, node, true, &how)
		})
	}
}

// alike is what an elector knows, as the product has it, of a daemon in this role.
func (r role) alike(self plan.Self) leadership.Memory {
	l := fenced(self)
	m := leadership.Memory{Lease: l, Term: &l.Term, Reporter: r == reporting}
	l.Reporter = m.Reporter
	switch r {
	case standing:
		return leadership.Memory{}
	case leading, reporting:
		m.Trusted = long
	}
	return m
}

func holderName(self plan.Self) string { return self.Node + "_boot" }

// fenced is a lease that a daemon holds.
func fenced(self plan.Self) *leadership.Lease {
	return &leadership.Lease{Holder: holderName(self), Term: termOf(1), Version: "1"}
}
