package main

import (
	"testing"
)

// explored explores a world up to so many states, and reports what does not hold.
func explored(t *testing.T, name string, states int) {
	t.Helper()
	x, err := newExplorer(states)
	if err != nil {
		t.Fatal(err)
	}
	defer x.close()
	sum := x.explore(t.Context(), worldOf(t, name).first())
	t.Log(x.describe(worldOf(t, name), sum))
	for _, f := range x.sorted() {
		t.Errorf("%s\n%s", f.what, x.printed(worldOf(t, name), f))
	}
}

func worldOf(t *testing.T, name string) world {
	t.Helper()
	for _, w := range worlds {
		if w.name == name {
			return w
		}
	}
	t.Fatalf("there is no world %q", name)
	return world{}
}

// The small worlds are explored whole, and of the others a part. The command goes further.
func TestKilled(t *testing.T)   { explored(t, "killed", 0) }
func TestForced(t *testing.T)   { explored(t, "forced", 0) }
func TestLosses(t *testing.T)   { explored(t, "losses", 0) }
func TestRestored(t *testing.T) { explored(t, "restored", 0) }
func TestWatches(t *testing.T)  { explored(t, "watches", 0) }
func TestArchived(t *testing.T) { explored(t, "archived", 0) }
func TestAgain(t *testing.T)    { explored(t, "again", 100_000) }
func TestTwo(t *testing.T)      { explored(t, "two", 100_000) }

// TestKept plays orders of events that once broke an invariant.
func TestKept(t *testing.T) {
	x, err := newExplorer(0)
	if err != nil {
		t.Fatal(err)
	}
	defer x.close()
	for _, kept := range []struct {
		world string
		order []string
	}{
		{"restored", []string{ // ReleaseFinalizer did not look whether the volume was released still
			"claim c0 is made",
			"the daemon takes up the claim of pvc-c0-1",
			"the daemon calls List of the pool",
			"the daemon calls Create of pvc-c0-1",
			"the daemon creates volume object pvc-c0-1",
			"kube-controller-manager binds pvc-c0-1",
			"etcd is saved",
			"claim c0 is deleted",
			"kube-controller-manager releases pvc-c0-1",
			"the daemon takes up volume pvc-c0-1",
			"the daemon reads volume object pvc-c0-1",
			"the daemon reads claim c0",
			"etcd is restored",
			"the daemon calls Lookup of pvc-c0-1",
			"the daemon calls Trash of pvc-c0-1",
			"the daemon takes its finalizer off volume pvc-c0-1",
		}},
	} {
		s, err := x.workers[0].follow(worldOf(t, kept.world), kept.order)
		if err != nil {
			t.Fatal(err)
		}
		if wrong := x.check(x.workers[0], &s); wrong != "" || s.daemon.task != 0 {
			t.Errorf("%s: %q: work goes on: %t", kept.order[len(kept.order)-1], wrong, s.daemon.task != 0)
		}
	}
}
