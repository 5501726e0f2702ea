package csi

import (
	"context"
	"sync"
)

// turns lets one call at a time work on a volume: a second target of it is compared with the mounts that are there. The zero
// value is ready.
type turns struct {
	mu  sync.Mutex
	all map[string]*turn
}

type turn struct {
	held  chan struct{}
	users int
}

// take waits until no other call works on the volume. done ends the turn.
func (t *turns) take(ctx context.Context, volume string) (done func(), err error) {
	t.mu.Lock()
	if t.all == nil {
		t.all = map[string]*turn{}
	}
	one := t.all[volume]
	if one == nil {
		one = &turn{held: make(chan struct{}, 1)}
		t.all[volume] = one
	}
	one.users++
	t.mu.Unlock()
	select {
	case one.held <- struct{}{}:
		return func() { <-one.held; t.leave(volume, one) }, nil
	case <-ctx.Done():
		t.leave(volume, one)
		return nil, ctx.Err()
	}
}

func (t *turns) leave(volume string, one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(t.all, volume)
	}
}
