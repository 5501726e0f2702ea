package model

import (
	"fmt"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

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
