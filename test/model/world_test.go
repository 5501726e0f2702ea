package model

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
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
	x, err := newExplorer(states)
	if err != nil {
		t.Fatal(err)
	}
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
	w, err := worldNamed(name)
	if err != nil {
		t.Fatal(err)
	}
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
func TestKept(t *testing.T) {
	x, err := newExplorer(0)
	if err != nil {
		t.Fatal(err)
	}
	defer x.close()
	for _, file := range orders(t) {
		o, err := readOrder(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := x.workers[0].follow(o, nil)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if wrong := x.check(x.workers[0], &s); wrong != "" || s.busy() {
			t.Errorf("%s: %q; the daemon is about to: %s", file, wrong, x.workers[0].asked(&s, 0))
		}
	}
}

// orders are the files of those that are kept.
func orders(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "orders", "*.txt"))
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
