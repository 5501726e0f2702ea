package model

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/crash/killer"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

var orderFile = flag.String("order", "", "play the order in this file, and not those that are kept")

func TestMain(m *testing.M) {
	if killer.Asked() { // this copy is to be the daemon
		fmt.Fprintln(os.Stderr, "model: becoming the daemon:", killer.Become(os.Args))
		os.Exit(1)
	}
	code := hosttest.Main(m)
	if exploredStates > 0 { // in the process inside the namespace
		fmt.Printf("%d states of %d of %d worlds\n", exploredStates, exploredWorlds, len(worlds))
	}
	os.Exit(code)
}

// TestReal plays the kept orders on the daemon's binary, a real API server and a real filesystem,
// beside the model: after each event objects and files are those of the model, and in the end every
// invariant holds.
func TestReal(t *testing.T) {
	files := orders(t, "orders")
	if os.Getenv("HOSTPATH_WORLDS") != "whole" {
		all := len(files)
		files = slices.DeleteFunc(files, func(file string) bool { return slices.Contains(lengthy, filepath.Base(file)) })
		if all != len(files)+len(lengthy) {
			t.Errorf("of %q there are %d", lengthy, all-len(files))
		}
	}
	if *orderFile != "" {
		files = []string{*orderFile}
	}
	on, failed := planes{T: t}, 0
	for _, file := range files {
		o := hosttest.Need(readOrder(file))(t)
		plane := on.of(o.world)
		if !t.Run(filepath.Base(file), func(t *testing.T) { playsKept(t, plane, o) }) {
			failed++
		}
		if failed == mostWrong { // one cause is likely, and each waits until its time is over
			t.Fatal("the other orders are not played")
		}
	}
}

// lengthy are orders that take ten seconds and more, most for a control plane that is restored, beside
// others of the same kind that every change is tried with. make test-worlds plays them.
var lengthy = []string{
	"adopted-and-restored.txt", "archived-and-restored.txt", "restored-while-growing.txt",
	"restored-while-removed.txt", "restored-while-snapshot-goes.txt", "snapshot-half-copied.txt",
}

// mostWrong is how many orders may differ before the others are left out.
const mostWrong = 3

// playsKept plays one order.
func playsKept(t *testing.T, plane *cluster.Cluster, o order) {
	t.Helper()
	if why := o.world.apart(); why != "" {
		t.Fatalf("an order of world %s cannot be played for real: %s", o.world.name, why)
	}
	x := explorerOf(t, 0, 1)
	st := newStage(t, plane, x.workers[0], o.world.first())
	defer st.end()
	st.begin()
	s, err := x.workers[0].follow(o, st.play)
	if err != nil {
		t.Error(err)
	}
	if wrong, err := st.settle(s); wrong != "" || err != nil {
		t.Errorf("on the real daemon: %s: %v", wrong, err)
	}
}

// Each event can be played for real, or it is told why not.
func TestEveryEventIsPlayed(t *testing.T) {
	for _, e := range events {
		if (happenings[e.name] != nil) == (ghosts[e.name] != "") {
			t.Errorf("%q: it can be played, or it is told why it cannot be", e.name)
		}
	}
}
