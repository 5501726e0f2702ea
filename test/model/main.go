// Package model plays every order of events in a small world, breadth-first, and checks named
// invariants in each state.
//
// What decides is the product: the controllers of daemon/controllers with the rules of daemon/rules/plan
// run in it, one piece of work at a time, and each request to the API server and each call to the
// disk is a step between which anything else may happen. The disk is the product's, too:
// daemon/disk/volume works on a real directory, also up to each of its steps at which a process can die.
// What the model replaces is the API server (server.go), kube-controller-manager, pods and people
// (events.go), the watches (a cache that is current or was current once), the queues (any work may
// come at any time that the daemon is idle) and the clock.
//
// The product's code is run once for each thing that it can read (tree.go): its work is a tree of
// requests, of which each response leads to the next request. A state has the place in that tree,
// so that states are small and are compared by a hash.
//
// An order of events is a text. Those in testdata/orders are played in the model (TestKept) and on
// the daemon's binary, a real API server and a real filesystem (TestReal): requests are held by a
// proxy and system calls by test/crash/killer until the order comes to them, and after each event
// objects and files are compared with the model's. Of two nodes each has a daemon, in a mount
// namespace of its own. make test-model-real plays orders that are chosen at random.
//
// It will not see races between goroutines of one daemon but those of beside.go, the order
// in which queues bring work, what depends on durations, and what a power cut takes: other tests
// do.
package model

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// options is what the command line says.
type options struct {
	only   string
	play   string        // a file with one order
	states int           // of each world at most, 0: all
	time   time.Duration // for all worlds together
}

// Trial is the command line.
func Trial() harness.Trial {
	var o options
	return harness.Trial{
		Name: "model", Short: "time=110s",
		Does: `Plays every order of events in small worlds with the product's own controllers, and checks invariants in each
state. The shortest order that leads to one that does not hold is printed.`,
		Flags: func(flags *flag.FlagSet) {
			flags.StringVar(&o.only, "only", "", "only worlds whose name contains this")
			flags.StringVar(&o.play, "play", "", "play the order in this file, and nothing else")
			flags.IntVar(&o.states, "states", 20_000_000, "so many states of each world at most; 0: all")
			flags.DurationVar(&o.time, "time", time.Hour, "how long all worlds are explored at most, each for an equal part of what is left")
		},
		Check: func() error {
			if o.states < 0 || o.time <= 0 {
				return errors.New("-states cannot be negative, -time must be positive")
			}
			return nil
		},
		Play: func(ctx context.Context, p *harness.Program) { play(ctx, p, o) },
	}
}

// howToKeep is what is printed with a finding.
const howToKeep = `the shortest order that leads there. A file in test/model/testdata/orders keeps it: it is played by
prove model -play FILE, and on a real daemon and API server by go test ./test/model -run TestReal.
%s`

// play is the whole program.
func play(ctx context.Context, p *harness.Program, opt options) {
	if opt.play != "" {
		playOrder(p, opt.play)
		return
	}
	var found []string
	states := 0
	chosen := slices.DeleteFunc(slices.Clone(worlds), func(w world) bool { return !strings.Contains(w.name, opt.only) })
	for i, world := range chosen {
		share := (opt.time - p.Elapsed()) / time.Duration(len(chosen)-i) // what a small world leaves the others have
		wrong, n := playWorld(ctx, p, world, opt.states, share)
		found, states = append(found, wrong...), states+n
	}
	p.Say("%d states in all", states)
	p.Report(found...)
}

// playOrder plays one order, and reports what does not hold then.
func playOrder(p *harness.Program, file string) {
	o, err := readOrder(file)
	p.Must(err, "reading an order")
	x := newExplorer(p, 0, 1)
	defer x.close()
	s, err := x.workers[0].follow(o, func(_ state, m move, _ state, _ string) error { p.Say("%s", m); return nil })
	p.Must(err, "playing "+file)
	var found []string
	if wrong := x.check(x.workers[0], &s); wrong != "" {
		found = append(found, wrong)
		p.Fault(wrong, "after the last event, or when all has happened that happens by itself")
	}
	p.Report(found...)
}

// playWorld explores one world, and returns what does not hold in it and how many states it has.
func playWorld(ctx context.Context, p *harness.Program, world world, states int, share time.Duration) (found []string, n int) {
	ctx, cancel := context.WithTimeout(ctx, share)
	defer cancel()
	x := newExplorer(p, states, runtime.GOMAXPROCS(0))
	defer x.close()
	first := x.workers[0].opening(world)
	sum := x.explore(ctx, first)
	p.Say("%s", x.describe(world, sum))
	for _, f := range x.sorted() {
		found = append(found, f.what)
		p.Fault(f.what, howToKeep, order{world, slices.Concat(world.opening, x.order(first, f.id))})
	}
	return found, sum.states
}

// newExplorer makes an explorer of at most so many states, 0: all.
func newExplorer(t hosttest.T, states, workers int) *explorer {
	dir := hosttest.Need(os.MkdirTemp("/dev/shm", "model-"))(t)
	x := &explorer{tree: newTree(newDisks()), limit: states, most: 1, dir: dir}
	for range workers {
		x.workers = append(x.workers, newWorker(x.tree, newWorkshop(t, dir)))
	}
	return x
}

// close removes what newExplorer made.
func (x *explorer) close() {
	for _, w := range x.workers {
		w.product.close()
	}
	check(os.RemoveAll(x.dir))
}

// describe is what an exploration covered, in a sentence.
func (x *explorer) describe(world world, sum summary) string {
	extent := "all of them"
	if !sum.whole {
		extent = "not all of them"
	}
	played := 0
	for _, w := range x.workers {
		played += w.product.played
	}
	return fmt.Sprintf("%s: %d states (%s), %d deep, by %d moves in %.1f s; the product's work was played %d times and has %d places; %d contents of the pool, %d calls",
		world.name, sum.states, extent, sum.depth, sum.moves, sum.took.Seconds(), played, len(x.tree.places)-1, x.tree.disks.images.len(), x.tree.disks.calls.Load())
}

func (x *explorer) sorted() (all []finding) {
	for _, f := range x.findings {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b finding) int { return int(a.id) - int(b.id) })
	return all
}

// order is what happens from the first state to one that was reached.
func (x *explorer) order(first state, id uint32) []string {
	var way []uint32
	for ; id != 0; id = x.parents[id].from {
		way = append(way, x.parents[id].move)
	}
	slices.Reverse(way)
	var lines []string
	s := first
	for _, wanted := range way {
		n, at := uint32(0), s
		x.workers[0].moves(at, func(m move, after state) {
			if n == wanted {
				lines, s = append(lines, m.String()), after
			}
			n++
		})
	}
	return lines
}

// invariantOf is the name in a finding.
func invariantOf(what string) string { name, _, _ := strings.Cut(what, ":"); return name }
