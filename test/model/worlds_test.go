package model

import (
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// exploredStates and exploredWorlds are what the tests of this process explored.
var exploredStates, exploredWorlds int

// seeded is how many states of each world every change is tried with, half a minute for all
// worlds on two processors. With HOSTPATH_WORLDS=whole (make test-worlds, make mutants) it is as
// many as the world says.
const seeded = 2_500

// TestWorlds explores the small worlds whole, and of the others a part. The command goes further.
func TestWorlds(t *testing.T) {
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) { explored(t, w) })
	}
}

// explored explores a world, and reports what does not hold.
func explored(t *testing.T, w world) {
	states := w.tried
	if os.Getenv("HOSTPATH_WORLDS") != "whole" && (states == 0 || states > seeded) {
		states = seeded
	}
	x := explorerOf(t, states, runtime.GOMAXPROCS(0))
	first := x.workers[0].opening(w)
	sum := x.explore(t.Context(), first)
	t.Log(x.describe(w, sum))
	exploredStates, exploredWorlds = exploredStates+sum.states, exploredWorlds+1
	for _, f := range x.sorted() {
		t.Errorf("%s\n"+howToKeep, f.what, order{w, slices.Concat(w.opening, x.order(first, f.id))})
	}
}

// explorerOf is an explorer until the test ends.
func explorerOf(t *testing.T, states, workers int) *explorer {
	t.Helper()
	x := newExplorer(t, states, workers)
	t.Cleanup(x.close)
	return x
}

// TestKept plays orders of events that once broke an invariant.
func TestKept(t *testing.T) { playAll(t, orders(t, "orders")) }

// playAll plays orders, after which nothing may be wrong.
func playAll(t *testing.T, files []string) {
	t.Helper()
	x := explorerOf(t, 0, 1)
	for _, file := range files {
		s, err := x.workers[0].follow(hosttest.Need(readOrder(file))(t), nil)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if wrong := x.check(x.workers[0], &s); wrong != "" || s.busy() {
			t.Errorf("%s: %q; the daemon is about to: %s", file, wrong, x.workers[0].asked(&s, 0))
		}
	}
}

// orders are the files of those that are kept in a directory of testdata.
func orders(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", dir, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no orders are kept: %v", err)
	}
	return files
}

// An order is read as it was printed.
func TestOrders(t *testing.T) {
	o := order{worlds[0], []string{"claim c0 is made", "etcd is saved"}}
	if got, err := parseOrder("# why\n\n" + o.String()); err != nil || !reflect.DeepEqual(got, o) {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "claim c0 is made\n", "world nowhere\n"} {
		if _, err := parseOrder(text); err == nil {
			t.Errorf("%q is an order", text)
		}
	}
}

// A filesystem with the pool's marker is in order on the pool's node alone, and one with another
// marker nowhere.
func TestMarkersAreJudged(t *testing.T) {
	other := markOf(nodePool)
	other.ID = "another"
	for found, want := range map[judgement]bool{{0, nodePool, markOf(nodePool)}: true, {1, nodePool, markOf(nodePool)}: false, {0, nodePool, other}: false, {1, sharedPool, markOf(sharedPool)}: true} {
		if judged[found] != want {
			t.Errorf("%+v is in order: %t", found, judged[found])
		}
	}
}

// The mirror of a state's mirror is the state; and a state and its mirror are merged.
func TestMirror(t *testing.T) {
	x := explorerOf(t, 30_000, 1)
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
	x.explore(t.Context(), hosttest.Need(worldNamed("two"))(t).first())
	if asymmetric == 0 {
		t.Error("no state has another mirror than itself")
	}
}

// As many states are explored as there are pairs of mirrors among all states: what follows the
// mirror of a state is the mirror of what follows the state.
func TestMirrorsLeaveNothingOut(t *testing.T) {
	first, pairs := world{names: 2}.first(), map[uint64]bool{}
	note := func(w *worker, s *state) {
		m := w.mirror(*s)
		pairs[min(s.hash(), m.hash())] = true
	}
	explore := func(apart bool) summary {
		x := explorerOf(t, 0, 1)
		if apart {
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

// TestModelled plays orders that broke an invariant, or would without what mends it, and that the
// stage of TestReal cannot play.
func TestModelled(t *testing.T) { playAll(t, orders(t, "modelled")) }
