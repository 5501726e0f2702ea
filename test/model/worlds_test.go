package model

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// exploredStates and exploredNames are what the tests of this process explored, one after the
// other.
var (
	exploredStates int
	exploredNames  = map[string]bool{}
)

// seeded is how many states of each world every change is tried with, less than a minute for all
// worlds on two processors. With HOSTPATH_WORLDS=whole (make test-worlds, make mutants) it is as
// many as a test says.
const seeded = 5_000

// explored explores a world up to so many states, and reports what does not hold.
func explored(t *testing.T, name string, states int) {
	t.Helper()
	if os.Getenv("HOSTPATH_WORLDS") != "whole" && (states == 0 || states > seeded) {
		states = seeded
	}
	x := hosttest.Need(newExplorer(states))(t)
	defer x.close()
	first := x.workers[0].opening(worldOf(t, name))
	sum := x.explore(t.Context(), first)
	t.Log(x.describe(worldOf(t, name), sum))
	exploredStates += sum.states
	exploredNames[name] = true
	for _, f := range x.sorted() {
		t.Errorf("%s\n"+howToKeep, f.what, order{worldOf(t, name), slices.Concat(worldOf(t, name).opening, x.order(first, f.id))})
	}
}

func worldOf(t *testing.T, name string) world {
	t.Helper()
	w := hosttest.Need(worldNamed(name))(t)
	return w
}

// The small worlds are explored whole, and of the others a part. The command goes further.
func TestKilled(t *testing.T)       { explored(t, "killed", 0) }
func TestForced(t *testing.T)       { explored(t, "forced", 0) }
func TestLabels(t *testing.T)       { explored(t, "labels", 40_000) }
func TestLabelsLosses(t *testing.T) { explored(t, "labels-losses", 40_000) }
func TestLosses(t *testing.T)       { explored(t, "losses", 0) }
func TestRestored(t *testing.T)     { explored(t, "restored", 0) }
func TestWatches(t *testing.T)      { explored(t, "watches", 0) }
func TestArchived(t *testing.T)     { explored(t, "archived", 0) }
func TestRenamed(t *testing.T)      { explored(t, "renamed", 0) }
func TestPattern(t *testing.T)      { explored(t, "pattern", 50_000) }
func TestCluster(t *testing.T)      { explored(t, "cluster", 50_000) }
func TestPeople(t *testing.T)       { explored(t, "people", 0) }
func TestStranger(t *testing.T)     { explored(t, "stranger", 60_000) }
func TestAgain(t *testing.T)        { explored(t, "again", 100_000) }
func TestTwo(t *testing.T)          { explored(t, "two", 100_000) }

// The largest worlds of all.
func TestAll(t *testing.T)       { explored(t, "all", 10_000) }
func TestSharedAll(t *testing.T) { explored(t, "shared-all", 10_000) }

// TestKept plays orders of events that once broke an invariant.
func TestKept(t *testing.T) { playAll(t, orders(t, "orders")) }

// playAll plays orders, after which nothing may be wrong.
func playAll(t *testing.T, files []string) {
	t.Helper()
	x := hosttest.Need(newExplorer(0))(t)
	defer x.close()
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

func TestCollected(t *testing.T)         { explored(t, "every-collected", 20_000) }
func TestCollectedKilled(t *testing.T)   { explored(t, "every-collected-killed", 0) }
func TestCollectedPolicies(t *testing.T) { explored(t, "every-collected-policies", 20_000) }
func TestCollectedRestored(t *testing.T) { explored(t, "every-collected-restored", 15_000) }
func TestCollectedArchived(t *testing.T) { explored(t, "every-collected-archived", 15_000) }

func TestEvery(t *testing.T)         { explored(t, "every", 0) }
func TestEveryKilled(t *testing.T)   { explored(t, "every-killed", 0) }
func TestEveryPolicies(t *testing.T) { explored(t, "every-policies", 0) }
func TestEveryGone(t *testing.T)     { explored(t, "every-gone", 50_000) }
func TestEveryRestored(t *testing.T) { explored(t, "every-restored", 60_000) }
func TestEveryLost(t *testing.T)     { explored(t, "every-lost", 40_000) }
func TestEveryArchived(t *testing.T) { explored(t, "every-archived", 40_000) }
func TestEveryHalfway(t *testing.T)  { explored(t, "every-halfway", 40_000) }
func TestEveryAgain(t *testing.T)    { explored(t, "every-again", 40_000) }

func TestAdopted(t *testing.T)         { explored(t, "adopted", 30_000) }
func TestAdoptedChanged(t *testing.T)  { explored(t, "adopted-changed", 20_000) }
func TestAdoptedRestored(t *testing.T) { explored(t, "adopted-restored", 40_000) }
func TestAdoptedLost(t *testing.T)     { explored(t, "adopted-lost", 20_000) }
func TestAdoptedArchived(t *testing.T) { explored(t, "adopted-archived", 20_000) }

func TestCloned(t *testing.T)         { explored(t, "cloned", 0) }
func TestClonedAgain(t *testing.T)    { explored(t, "cloned-again", 8_000) }
func TestClonedLosses(t *testing.T)   { explored(t, "cloned-losses", 6_000) }
func TestClonedRestored(t *testing.T) { explored(t, "cloned-restored", 45_000) }
func TestClonedRaced(t *testing.T)    { explored(t, "cloned-raced", 4_000) }

func TestGrown(t *testing.T)         { explored(t, "grown", 0) }
func TestGrownLosses(t *testing.T)   { explored(t, "grown-losses", 0) }
func TestGrownRestored(t *testing.T) { explored(t, "grown-restored", 0) }
func TestLastSpace(t *testing.T)     { explored(t, "last-space", 50_000) }
func TestRaced(t *testing.T)         { explored(t, "raced", 15_000) }

func TestKeptVolume(t *testing.T)   { explored(t, "kept", 0) }
func TestKeptDeleted(t *testing.T)  { explored(t, "kept-deleted", 20_000) }
func TestKeptLosses(t *testing.T)   { explored(t, "kept-losses", 20_000) }
func TestKeptAgain(t *testing.T)    { explored(t, "kept-again", 20_000) }
func TestKeptRestored(t *testing.T) { explored(t, "kept-restored", 20_000) }
func TestKeptWatches(t *testing.T)  { explored(t, "kept-watches", 20_000) }

func TestLate(t *testing.T)         { explored(t, "late", 6_000) }
func TestLateKilled(t *testing.T)   { explored(t, "late-killed", 2_000) }
func TestLateRetained(t *testing.T) { explored(t, "late-retained", 40_000) }
func TestLateAgain(t *testing.T)    { explored(t, "late-again", 2_000) }
func TestLateGrown(t *testing.T)    { explored(t, "late-grown", 2_000) }
func TestLateShared(t *testing.T)   { explored(t, "late-shared", 2_000) }

func TestPods(t *testing.T)       { explored(t, "pods", 0) }
func TestPodsKilled(t *testing.T) { explored(t, "pods-killed", 0) }
func TestPodsRaced(t *testing.T)  { explored(t, "pods-raced", 0) }
func TestPodsLosses(t *testing.T) { explored(t, "pods-losses", 0) }
func TestPodsAsked(t *testing.T)  { explored(t, "pods-asked", 20_000) }

func TestScopeShared(t *testing.T)   { explored(t, "scope-shared", 0) }
func TestScopeAlone(t *testing.T)    { explored(t, "scope-alone", 0) }
func TestScopeTaken(t *testing.T)    { explored(t, "scope-taken", 20_000) }
func TestScopeRestored(t *testing.T) { explored(t, "scope-restored", 20_000) }
func TestScopeDeleted(t *testing.T)  { explored(t, "scope-deleted", 20_000) }

func TestSharedGrown(t *testing.T)        { explored(t, "shared-grown", 20_000) }
func TestSharedGrownKilled(t *testing.T)  { explored(t, "shared-grown-killed", 20_000) }
func TestSharedGrownStopped(t *testing.T) { explored(t, "shared-grown-stopped", 40_000) }
func TestSharedLastSpace(t *testing.T)    { explored(t, "shared-last-space", 20_000) }

func TestShared(t *testing.T)          { explored(t, "shared", 0) }
func TestSharedKilled(t *testing.T)    { explored(t, "shared-killed", 0) }
func TestSharedPolicies(t *testing.T)  { explored(t, "shared-policies", 0) }
func TestSharedDeleted(t *testing.T)   { explored(t, "shared-deleted", 0) }
func TestSharedStopped(t *testing.T)   { explored(t, "shared-stopped", 30_000) }
func TestSharedRestored(t *testing.T)  { explored(t, "shared-restored", 30_000) }
func TestSharedBetween(t *testing.T)   { explored(t, "shared-between", 300_000) }
func TestSharedChanged(t *testing.T)   { explored(t, "shared-changed", 250_000) }
func TestSharedGone(t *testing.T)      { explored(t, "shared-gone", 30_000) }
func TestSharedArchived(t *testing.T)  { explored(t, "shared-archived", 20_000) }
func TestSharedUnmounted(t *testing.T) { explored(t, "shared-unmounted", 20_000) }
func TestSharedBeside(t *testing.T)    { explored(t, "shared-beside", 20_000) }
func TestSharedLabels(t *testing.T)    { explored(t, "shared-labels", 20_000) }

func TestSnapshot(t *testing.T)         { explored(t, "snapshot", 20_000) }
func TestSnapshotLosses(t *testing.T)   { explored(t, "snapshot-losses", 15_000) }
func TestSnapshotSource(t *testing.T)   { explored(t, "snapshot-source", 15_000) }
func TestSnapshotEnds(t *testing.T)     { explored(t, "snapshot-ends", 20_000) }
func TestSnapshotRaced(t *testing.T)    { explored(t, "snapshot-raced", 15_000) }
func TestSnapshotRestored(t *testing.T) { explored(t, "snapshot-restored", 20_000) }
func TestSnapshotForced(t *testing.T)   { explored(t, "snapshot-forced", 20_000) }
func TestSnapshotLost(t *testing.T)     { explored(t, "snapshot-lost", 20_000) }

func TestDiskSwapped(t *testing.T)        { explored(t, "swapped", 15_000) }
func TestDiskCopied(t *testing.T)         { explored(t, "copied-disk", 20_000) }
func TestDiskCopiedKilled(t *testing.T)   { explored(t, "copied-disk-killed", 20_000) }
func TestDiskCopiedRestored(t *testing.T) { explored(t, "copied-disk-restored", 20_000) }
func TestSharedDiskSwapped(t *testing.T)  { explored(t, "shared-swapped", 20_000) }
func TestSharedDiskCopied(t *testing.T)   { explored(t, "shared-copied", 20_000) }
func TestSharedCopiedKilled(t *testing.T) { explored(t, "shared-copied-killed", 20_000) }
func TestDiskMountedTwice(t *testing.T)   { explored(t, "twice", 20_000) }

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
	x := hosttest.Need(newExplorer(30_000))(t)
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
		x := hosttest.Need(newExplorer(0))(t)
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

// TestModelled plays orders that broke an invariant, or would without what mends it, and that the
// stage of TestReal cannot play.
func TestModelled(t *testing.T) { playAll(t, orders(t, "modelled")) }
