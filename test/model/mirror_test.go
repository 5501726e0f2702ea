package model

import "testing"

// The mirror of a state's mirror is the state; and a state and its mirror are merged.
func TestMirror(t *testing.T) {
	x, err := newExplorer(30_000)
	if err != nil {
		t.Fatal(err)
	}
	defer x.close()
	for _, w := range x.workers[1:] {
		w.product.close()
	}
	x.workers = x.workers[:1]
	asymmetric, wrong := 0, 0
	x.each = func(w *worker, _ *state, m move, s *state) {
		other := w.mirror(*s)
		if other != *s {
			asymmetric++
		}
		if back := w.mirror(other); back != *s || w.canonical(&other) != w.canonical(s) {
			if wrong++; wrong < 10 {
				t.Errorf("after %q: %+v\nhas the mirror %+v\nand that has %+v", m, *s, other, back)
			}
		}
	}
	x.explore(t.Context(), worldOf(t, "two").first())
	if asymmetric == 0 {
		t.Error("no state has another mirror than itself")
	}
}

// As many states are explored as there are pairs of mirrors among all states: what follows the
// mirror of a state is the mirror of what follows the state.
func TestMirrorsLeaveNothingOut(t *testing.T) {
	first, pairs := world{names: 2, claims: 1}.first(), map[uint64]bool{}
	note := func(w *worker, s *state) {
		m := w.mirror(*s)
		pairs[min(s.hash(), m.hash())] = true
	}
	explore := func(apart bool) summary {
		x, err := newExplorer(0)
		if err != nil {
			t.Fatal(err)
		}
		defer x.close()
		for _, w := range x.workers[1:] {
			w.product.close()
		}
		if x.workers = x.workers[:1]; apart {
			x.workers[0].apart = true
			note(x.workers[0], &first)
			x.each = func(w *worker, _ *state, _ move, s *state) { note(w, s) }
		}
		return x.explore(t.Context(), first)
	}
	all, once := explore(true), explore(false)
	t.Logf("%d states, %d without mirrors", all.states, once.states)
	if !all.whole || !once.whole || once.states != len(pairs) || once.states > all.states*6/10 {
		t.Errorf("of %d states, which are %d pairs, %d were explored", all.states, len(pairs), once.states)
	}
}
