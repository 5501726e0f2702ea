package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

func main() { os.Exit(harness.Main(name, parseOptions, play)) }

const name = "model"

// play is the whole program.
func play(ctx context.Context, p *harness.Program, opt options) {
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

// playWorld explores one world, and returns what does not hold in it and how many states it has.
func playWorld(ctx context.Context, p *harness.Program, world world, states int, share time.Duration) (found []string, n int) {
	ctx, cancel := context.WithTimeout(ctx, share)
	defer cancel()
	x, err := newExplorer(states)
	p.Must(err, "making directories for the pool")
	defer x.close()
	sum := x.explore(ctx, world.first())
	p.Say("%s", x.describe(world, sum))
	for _, f := range x.sorted() {
		found = append(found, f.what)
		p.Fault(f.what, "the shortest order that leads there, as a case of TestKept:\n%s", x.printed(world, f))
	}
	return found, sum.states
}

// newExplorer makes an explorer with a worker for each processor.
func newExplorer(states int) (*explorer, error) {
	dir, err := os.MkdirTemp("/dev/shm", "model-")
	if err != nil {
		return nil, err
	}
	x := &explorer{tree: newTree(newDisks()), limit: states, most: 1, dir: dir}
	for range runtime.GOMAXPROCS(0) {
		w, err := newWorker(x.tree, dir)
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		x.workers = append(x.workers, w)
	}
	return x, nil
}

// close removes what newExplorer made.
func (x *explorer) close() {
	for _, w := range x.workers {
		w.product.close()
	}
	check(os.RemoveAll(x.dir))
}

// printed is a finding as a case of TestKept.
func (x *explorer) printed(world world, f finding) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{%q, []string{\n", world.name)
	for _, line := range x.order(world.first(), f.id) {
		fmt.Fprintf(&b, "\t%q,\n", line)
	}
	return b.String() + "}},"
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
		world.name, sum.states, extent, sum.depth, sum.moves, sum.took.Seconds(), played, len(x.tree.nodes)-1, x.tree.disks.images.len(), x.tree.disks.calls)
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

// follow plays an order of events from the first state of a world.
func (w *worker) follow(world world, order []string) (state, error) {
	s := world.first()
	for n, line := range order {
		was, found := s, false
		w.moves(was, func(m move, after state) {
			if !found && m.String() == line {
				s, found = after, true
			}
		})
		if !found {
			return s, fmt.Errorf("event %d cannot happen: %s", n+1, line)
		}
	}
	return s, nil
}

// invariantOf is the name in a finding.
func invariantOf(what string) string { name, _, _ := strings.Cut(what, ":"); return name }
