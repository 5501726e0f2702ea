package model

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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

// lease is the Lease object of the shared pool. Its term is told by its token: numbers of terms are
// drawn anew for each.
type lease struct {
	exists   bool
	holder   uint8 // 0 is none, else holderOf
	reporter bool
	marked   bool  // it has the marker of the storage
	token    uint8 // of its term
	version  uint8
}

// elector is what a process knows of the lease.
type elector struct {
	known    lease
	old      bool // it was seen to change long ago
	doubtful bool
	term     uint8 // the token of the term that it holds, 0 is none
	reporter bool
	trusted  bool // it counts on that
	worked   bool
}

// role is what a daemon does in the shared pool, and whether it holds a term that it does not count
// on any more.
type role uint8

const (
	standing role = iota
	lapsed
	reporting
	leading
)

func (e *elector) role() role {
	switch {
	case e.term == 0:
		return standing
	case !e.trusted:
		return lapsed
	case e.reporter:
		return reporting
	default:
		return leading
	}
}

// holderOf is a node's daemon as a holder: one since the node started.
func holderOf(node int, boot uint8) uint8 { return 1 + uint8(node)*2 + boot }

func identityOf(holder uint8) string {
	if holder == 0 {
		return ""
	}
	return fmt.Sprintf("%s_%d", nodeName(int(holder-1)/2), (holder-1)%2)
}

const leaseUID = "lease"

// as is a lease as the product has it.
func (l lease) as() *leadership.Lease {
	if !l.exists {
		return nil
	}
	made := &leadership.Lease{
		Name: leadership.Name(plan.DefaultProvisioner, poolNames[sharedPool]), Pool: poolNames[sharedPool],
		Holder: identityOf(l.holder), Reporter: l.reporter, Term: termOf(l.token), Version: fmt.Sprint(l.version),
	}
	if l.marked {
		made.Marker = markerOf(sharedPool)
	}
	return made
}

func termOf(token uint8) leadership.Term {
	return leadership.Term{UID: leaseUID, Number: 1, Token: fmt.Sprintf("t%d", token)}
}

// fresh is the token of a term that the product has just drawn.
const fresh = 255

func tokenOf(t leadership.Term) (token uint8) {
	if _, err := fmt.Sscanf(t.Token, "t%d", &token); err != nil {
		return fresh
	}
	return token
}

// leaseOf is what the world keeps of a lease; nil is none.
func leaseOf(of *leadership.Lease) lease {
	if of == nil {
		return lease{}
	}
	l := lease{exists: true, reporter: of.Reporter, marked: of.Marker != "", token: tokenOf(of.Term)}
	fmt.Sscan(of.Version, &l.version)
	for holder := range uint8(1 + 2*nodes) {
		if identityOf(holder) == of.Holder {
			l.holder = holder
		}
	}
	return l
}

// as is what a process knows, as the product has it.
func (e *elector) as() leadership.Memory {
	m := leadership.Memory{Lease: e.known.as(), Doubtful: e.doubtful, Reporter: e.reporter}
	if e.old {
		m.Unchanged = long
	}
	if e.trusted {
		m.Trusted = long
	}
	if e.term != 0 {
		term := termOf(e.term)
		m.Term = &term
	}
	if e.worked {
		m.Worked = markerOf(sharedPool)
	}
	return m
}

// electorOf is what the world keeps of that.
func electorOf(m leadership.Memory) elector {
	e := elector{known: leaseOf(m.Lease), old: m.Unchanged > 0, doubtful: m.Doubtful, worked: m.Worked != ""}
	if m.Term != nil {
		e.term, e.reporter, e.trusted = tokenOf(*m.Term), m.Reporter, m.Trusted > 0
	}
	return e
}

// ranked numbers the versions and the tokens anew: only their order matters, and which are the
// same. Between two versions that were not next to each other there stays one that no write had: a
// restored server may give it to another one.
func (s *state) ranked() {
	versions := []*uint8{&s.revision}
	var tokens []*uint8
	for _, l := range []*lease{&s.lease, &s.backup, &s.daemons[0].elector.known, &s.daemons[1].elector.known} {
		if l.exists {
			versions, tokens = append(versions, &l.version), append(tokens, &l.token)
		}
	}
	for node := range s.daemons {
		if term := &s.daemons[node].elector.term; *term != 0 {
			tokens = append(tokens, term)
		}
	}
	renumber(versions, 2)
	renumber(tokens, 1)
}

// renumber gives values the numbers from 1 on in their order, with gaps of at most so much.
func renumber(values []*uint8, gap uint8) {
	slices.SortFunc(values, func(a, b *uint8) int { return int(*a) - int(*b) })
	was, now := uint8(0), uint8(0)
	for i, v := range values {
		if i == 0 {
			now = 1
		} else if *v != was {
			now += min(*v-was, gap)
		}
		was, *v = *v, now
	}
}
