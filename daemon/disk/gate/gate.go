// Package gate holds, for each pool, whether it takes work and, if not, why. A gate is closed until
// its pool was checked for the first time.
//
// It will not check anything itself, it will not log, and it does not wait: it remembers the last
// report.
package gate

import (
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// State is what is known of one pool.
type State struct {
	Report  hostcheck.Report
	Checked bool      // the pool was checked at least once
	Since   time.Time // of the present verdict: open, or closed for this reason
}

// Open reports whether the pool takes work.
func (s State) Open() bool { return s.Checked && s.Report.Open() }

// Removable reports whether volumes may be removed: also from a pool that is merely full.
func (s State) Removable() bool { return s.Checked && s.Report.Removable() }

// Identity is the directory that may be worked in. While nothing may be removed it is none, which
// no directory is: the report of a pool whose storage was replaced carries the identity of what
// stands in its place, and a caller that saw the gate open a moment ago must not take that for the
// pool.
func (s State) Identity() mounts.Identity {
	if !s.Removable() {
		return mounts.Identity{}
	}
	return s.Report.Identity
}

// Closed is why the pool takes no work, reason and message, both empty if it is open.
func (s State) Closed() (reason, message string) {
	if !s.Checked {
		return "NotChecked", "it was not checked yet"
	}
	f, closed := s.Report.Closed()
	if !closed {
		return "", ""
	}
	return f.Reason, f.Message
}

// Gate is the state of all pools. It is safe for concurrent use.
type Gate struct {
	mu     sync.RWMutex
	states map[string]State
	order  []string
}

// New makes closed gates for these pools.
func New(pools ...string) *Gate {
	g := &Gate{states: map[string]State{}, order: pools}
	for _, p := range pools {
		g.states[p] = State{Report: hostcheck.Report{Pool: p}}
	}
	return g
}

// Set takes a new report of a pool and returns the states before and after. From its return on
// every State call sees the new verdict. Reports of unknown pools are ignored.
func (g *Gate) Set(r hostcheck.Report, now time.Time) (before, after State) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before, known := g.states[r.Pool]
	if !known {
		return State{}, State{}
	}
	after = State{Report: r, Checked: true, Since: now}
	if !Changed(before, after) {
		after.Since = before.Since
	}
	g.states[r.Pool] = after
	return before, after
}

// Changed reports whether two states differ in what a person would be told: open or closed, and the
// reasons found. Free space moves all the time and does not count.
func Changed(a, b State) bool {
	if a.Checked != b.Checked || len(a.Report.Findings) != len(b.Report.Findings) {
		return true
	}
	for i, f := range a.Report.Findings {
		if f.Reason != b.Report.Findings[i].Reason || f.Severity != b.Report.Findings[i].Severity {
			return true
		}
	}
	return false
}

// Moved reports whether the directory that may be worked in is another one than before, or none.
func Moved(a, b State) bool { return a.Identity() != b.Identity() }

// State is the present state of a pool; an unknown pool is closed.
func (g *Gate) State(pool string) State {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.states[pool]
}

// All is the state of every pool, in the order of New.
func (g *Gate) All() []State {
	g.mu.RLock()
	defer g.mu.RUnlock()
	all := make([]State, 0, len(g.order))
	for _, p := range g.order {
		all = append(all, g.states[p])
	}
	return all
}
