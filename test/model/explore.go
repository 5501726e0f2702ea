package model

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// explorer goes through all states, breadth-first.
type explorer struct {
	tree    *tree
	workers []*worker
	dir     string // of their directories
	limit   int    // of states; 0 is none
	parents []edge
	visited hashes
	settled hashes

	mu       sync.Mutex
	level    []reached // of the states that were found last
	findings map[string]finding
	most     int // findings of different invariants, after which it ends
	// each, if it is not nil, is called with each move that was tried. It is for one worker.
	each func(w *worker, before *state, m move, after *state)
}

const shards = 64

// hashes is a set of states.
type hashes [shards]shard

// shard is a part of a set of states, by their hashes.
type shard struct {
	mu  sync.Mutex
	set map[uint64]struct{}
}

// add reports whether a hash is new.
func (sh *hashes) add(h uint64) bool {
	s := &sh[h%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.set[h]; known {
		return false
	}
	if s.set == nil {
		s.set = map[uint64]struct{}{}
	}
	s.set[h] = struct{}{}
	return true
}

// edge is how a state was reached first: from which one, by which of its moves.
type edge struct{ from, move uint32 }

// reached is a state and its number.
type reached struct {
	state state
	id    uint32
}

// finding is an invariant that does not hold, and where.
type finding struct {
	what string
	id   uint32
}

// summary is what an exploration covered.
type summary struct {
	states, moves, depth int
	whole                bool // no state was left out
	took                 time.Duration
}

// explore goes on until all states were seen, the limit is reached, ctx ends, or enough was found.
func (x *explorer) explore(ctx context.Context, first state) summary {
	began := time.Now()
	x.findings = map[string]finding{}
	x.visited.add(x.workers[0].canonical(&first))
	x.parents = []edge{{}}
	level := []reached{{first, 0}}
	sum := summary{states: 1}
	for len(level) > 0 {
		x.level = nil
		sum.moves += x.expand(ctx, level)
		sum.states = len(x.parents)
		level = x.level
		if ctx.Err() != nil || len(x.findings) >= x.most || x.limit > 0 && sum.states >= x.limit {
			break
		}
		sum.depth++
	}
	sum.whole, sum.took = len(level) == 0, time.Since(began)
	return sum
}

// batch is how many states a worker takes at once.
const batch = 256

// expand finds what follows the states of a level, and returns how many moves it tried.
func (x *explorer) expand(ctx context.Context, level []reached) (moves int) {
	var all sync.WaitGroup
	todo := make(chan []reached)
	for _, w := range x.workers {
		all.Go(func() {
			for some := range todo {
				n := 0
				for _, r := range some {
					n += x.follow(w, r)
				}
				x.mu.Lock()
				moves += n
				x.mu.Unlock()
			}
		})
	}
	for len(level) > 0 && ctx.Err() == nil && !x.full() {
		n := min(batch, len(level))
		todo <- level[:n]
		level = level[n:]
	}
	close(todo)
	all.Wait()
	return moves
}

func (x *explorer) full() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.limit > 0 && len(x.parents) >= x.limit || len(x.findings) >= x.most
}

// follow adds the states that follow one and are new, and checks them.
func (x *explorer) follow(w *worker, r reached) (moves int) {
	var fresh []state
	var by []uint32
	w.moves(r.state, func(m move, s state) {
		moves++
		if x.each != nil {
			x.each(w, &r.state, m, &s)
		}
		if x.visited.add(w.canonical(&s)) {
			fresh, by = append(fresh, s), append(by, uint32(moves-1))
		}
	})
	first := x.add(r.id, fresh, by)
	for i := range fresh {
		if wrong := x.check(w, &fresh[i]); wrong != "" {
			x.found(wrong, first+uint32(i))
		}
	}
	return moves
}

// add numbers new states, and returns the first number.
func (x *explorer) add(from uint32, fresh []state, by []uint32) uint32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	first := uint32(len(x.parents))
	for i, s := range fresh {
		x.parents = append(x.parents, edge{from, by[i]})
		x.level = append(x.level, reached{s, first + uint32(i)})
	}
	return first
}

// check returns what does not hold in a state, or when it settles.
func (x *explorer) check(w *worker, s *state) string {
	if wrong := w.broken(s); wrong != "" {
		return wrong
	}
	if s.busy() {
		return ""
	}
	var way []uint64
	wrong := w.settle(*s, func(on *state) bool {
		h := w.canonical(on)
		if !x.settled.has(h) {
			way = append(way, h)
			return false
		}
		return true
	})
	if wrong == "" {
		for _, h := range way {
			x.settled.add(h)
		}
	}
	return wrong
}

// has reports whether a hash is known.
func (sh *hashes) has(h uint64) bool {
	s := &sh[h%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.set[h]
	return known
}

// found keeps the first finding of each invariant.
func (x *explorer) found(what string, id uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	name := invariantOf(what)
	if old, known := x.findings[name]; !known || id < old.id {
		x.findings[name] = finding{what, id}
	}
}

// order is a world and what happens in it, one event or step a line. Its text begins with the name
// of the world; lines that begin with # are comments.
type order struct {
	world world
	lines []string
}

const worldPrefix = "world "

func (o order) String() string {
	return worldPrefix + o.world.name + "\n" + strings.Join(o.lines, "\n") + "\n"
}

// parseOrder is the opposite of order.String.
func parseOrder(text string) (o order, err error) {
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		name, first := strings.CutPrefix(line, worldPrefix)
		switch {
		case line == "" || line[0] == '#':
		case first && o.world.name == "":
			if o.world, err = worldNamed(name); err != nil {
				return o, err
			}
		default:
			o.lines = append(o.lines, line)
		}
	}
	if o.world.name == "" {
		return o, fmt.Errorf("the order does not begin with %q and the name of a world", worldPrefix)
	}
	return o, nil
}

// readOrder reads the text of an order from a file.
func readOrder(file string) (order, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return order{}, err
	}
	o, err := parseOrder(string(text))
	if err != nil {
		return o, fmt.Errorf("%s: %w", file, err)
	}
	return o, nil
}

func worldNamed(name string) (world, error) {
	for _, w := range worlds {
		if w.name == name {
			return w, nil
		}
	}
	return world{}, fmt.Errorf("there is no world %q", name)
}

// next is the move from a state that has this line. found is false if no such move is possible.
func (w *worker) next(s state, line string) (m move, after state, found bool) {
	w.moves(s, func(one move, then state) {
		if !found && one.String() == line {
			m, after, found = one, then, true
		}
	})
	return m, after, found
}

// asked is what a node's daemon is about to do.
func (w *worker) asked(s *state, node int) op {
	if at := w.tree.place(s.daemons[node].task); at != nil {
		return at.asks
	}
	return op{}
}

// opening is the state after a world's opening, from which it is explored.
func (w *worker) opening(of world) state {
	s, err := w.follow(order{of, of.opening}, nil)
	check(err)
	return s
}

// follow plays an order from the first state of its world. seen, if it is not nil, is called with
// each move and the line after it.
func (w *worker) follow(o order, seen func(before state, m move, after state, then string) error) (state, error) {
	s := o.world.first()
	for n, line := range o.lines {
		m, after, found := w.next(s, line)
		if !found {
			return s, fmt.Errorf("event %d cannot happen: %s; the daemon is about to: %s", n+1, line, w.asked(&s, 0))
		}
		if seen != nil {
			if err := seen(s, m, after, strings.Join(o.lines[n+1:min(n+2, len(o.lines))], "")); err != nil {
				return after, fmt.Errorf("event %d, %q: %w", n+1, line, err)
			}
		}
		s = after
	}
	return s, nil
}
