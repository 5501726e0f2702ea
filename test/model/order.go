package model

import (
	"fmt"
	"os"
	"strings"
)

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
