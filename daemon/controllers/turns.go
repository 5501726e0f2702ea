package controllers

import (
	"context"
	"slices"
	"sync"
)

// turns lets one copy of a pool go on at a time. The namespaces of those that wait take turns, so
// that many copies of one do not hold up another's. The zero value is ready for use.
type turns struct {
	mu      sync.Mutex
	busy    bool
	waiting []*turn        // in the order in which they came
	had     map[string]int // by namespace: the number of its last turn, while copies wait
	count   int
}

type turn struct {
	namespace string
	comes     chan struct{} // closed when it is this one's
}

// take waits for a turn. Each one that was taken is to be given back.
func (t *turns) take(ctx context.Context, namespace string) error {
	t.mu.Lock()
	if !t.busy {
		t.begin(namespace)
		t.mu.Unlock()
		return nil
	}
	one := &turn{namespace, make(chan struct{})}
	t.waiting = append(t.waiting, one)
	t.mu.Unlock()
	select {
	case <-one.comes:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	i := slices.Index(t.waiting, one)
	if i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}
	t.mu.Unlock()
	if i < 0 { // it came meanwhile
		t.give()
	}
	return ctx.Err()
}

func (t *turns) begin(namespace string) {
	t.busy = true
	t.count++
	if t.had == nil {
		t.had = map[string]int{}
	}
	t.had[namespace] = t.count
}

// give gives a turn back: the next one is that of the namespace which had none for longest.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.busy, t.had = false, nil
		return
	}
	next := slices.MinFunc(t.waiting, func(a, b *turn) int { return t.had[a.namespace] - t.had[b.namespace] })
	t.waiting = slices.DeleteFunc(t.waiting, func(one *turn) bool { return one == next })
	t.begin(next.namespace)
	close(next.comes)
}
