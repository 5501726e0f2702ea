package model

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// wander returns an order of at most so many events, chosen at random among what can happen and can
// be played on a real daemon.
func (w *worker) wander(of world, r *rand.Rand, most int) order {
	o := order{world: of, lines: slices.Clone(of.opening)}
	s := w.opening(of)
	for range most {
		m, after, any := w.chance(s, r)
		if !any {
			break
		}
		o.lines, s = append(o.lines, m.String()), after
	}
	return o
}

// chance is one of the moves from a state.
func (w *worker) chance(s state, r *rand.Rand) (chosen move, after state, any bool) {
	sum := 0
	w.moves(s, func(m move, then state) {
		n := w.weight(&s, m, &then)
		if sum += n; n > 0 && r.IntN(sum) < n {
			chosen, after, any = m, then, true
		}
	})
	return chosen, after, any
}

// weight is how often a move is chosen among others; 0: never, because it cannot be played for
// real. Daemons do what is to be done more often than they are disturbed.
func (w *worker) weight(s *state, m move, after *state) int {
	text := m.String()
	switch {
	case w.unlooked(s) && !strings.HasPrefix(text, "the daemon looks at "):
		return 0 // a real daemon looks by itself
	case w.unheard(s) && !strings.HasSuffix(text, "hears of the lease"):
		return 0 // a real daemon hears of it at once
	case m.event >= 0:
		if name := events[m.event].name; (exchanging[name] || name == "%s is unmounted") && w.atDisk(s) {
			return 0
		}
		return eventWeight(s, m)
	case m.adopt && s.adopter == 0:
		return 20
	case aboutLease(m):
		return leaseWeight(s, m, after)
	case slices.ContainsFunc(unplayable, func(part string) bool { return strings.Contains(text, part) }):
		return 0
	case m.op.kind == ended && strings.Contains(text, "is killed"):
		return 3
	case m.op.kind == ended && m.node != chosen && after.daemons[m.node].elector.role() != leading && s.poolOf(0) == sharedPool:
		return 0
	case m.what != "":
		return 6
	}
	return 40
}

// unplayable are parts of moves that no real daemon is made to do.
var unplayable = []string{"people make", "beside that", "in the other order"}

// eventWeight is that of an event.
func eventWeight(s *state, m move) int {
	name := events[m.event].name
	switch {
	case ghosts[name] != "", strings.HasPrefix(name, "node") && s.poolOf(0) == sharedPool:
		return 0
	case events[m.event].of == mountPoints && m.i%pools != s.poolOf(0), events[m.event].of == mountPoints && s.daemons[m.i/pools].task != 0 && !s.exchanges():
		return 0
	case strings.HasPrefix(name, "etcd"), name == "five seconds pass%s":
		return 2 // it takes long
	case name == "claim %s is deleted", name == "%s is unmounted":
		return 2 // little can happen after it
	case events[m.event].ours:
		return 20
	}
	return 8
}

// leaseWeight is that of a move between a daemon and the lease. A daemon whose term is over, by its
// own clock, is held in its work; one that is to have a response late or never is not.
func leaseWeight(s *state, m move, after *state) int {
	switch {
	case m.what != heardOfLease && m.what != tookLease, after.lease.reporter:
		return 0
	case after.holds(m.node) == s.holds(m.node):
		return 10
	}
	return 5
}

// What a daemon does about the lease, of the model's moves.
const (
	heardOfLease = "hears of the lease"
	tookLease    = "looks after the lease, which it has not heard of for long"
)

// unheard reports whether a daemon is yet to hear of the lease.
func (w *worker) unheard(s *state) bool {
	for node := range s.daemons {
		d := &s.daemons[node]
		if d.up && d.cache == 0 && s.poolOf(0) == sharedPool && !d.single && d.elector.known != s.lease {
			return true
		}
	}
	return false
}

// wandering are the worlds that are played at random.
func wandering() (some []world) {
	for _, w := range worlds {
		if w.apart() == "" {
			some = append(some, w)
		}
	}
	return some
}

// An order that was chosen at random can happen, and the same seed chooses the same one.
func TestWander(t *testing.T) {
	w := explorerOf(t, 0, 1).workers[0]
	for seed := range uint64(60) {
		of := wandering()[int(seed)%len(wandering())]
		o := w.wander(of, rand.New(rand.NewPCG(seed, 0)), 30)
		if again := w.wander(of, rand.New(rand.NewPCG(seed, 0)), 30); !slices.Equal(o.lines, again.lines) {
			t.Errorf("seed %d: %s\nand then %s", seed, o, again)
		}
		if _, err := w.follow(o, nil); err != nil || len(o.lines) == 0 {
			t.Errorf("seed %d: %v: %s", seed, err, o)
		}
	}
}
