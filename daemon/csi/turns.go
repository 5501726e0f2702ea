package csi

import (
	"context"
	"sync"
)

// turns lets one call at a time work on a volume, where a second target of it is compared with the
// mounts that are there, or a few on a filesystem. The zero value is ready, for one at a time.
type turns struct {
	most int // at a time

	mu  sync.Mutex
	all map[string]*turn
}

type turn struct {
	held  chan struct{}
	users int
}

// take waits until fewer calls than may work on it at a time do. done ends the turn.
func (t *turns) take(ctx context.Context, of string) (done func(), err error) {
	t.mu.Lock()
	if t.all == nil {
		t.all = map[string]*turn{}
	}
	one := t.all[of]
	if one == nil {
		one = &turn{held: make(chan struct{}, max(1, t.most))}
		t.all[of] = one
	}
	one.users++
	t.mu.Unlock()
	select {
	case one.held <- struct{}{}:
		return func() { <-one.held; t.leave(of, one) }, nil
	case <-ctx.Done():
		t.leave(of, one)
		return nil, ctx.Err()
	}
}

func (t *turns) leave(of string, one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(t.all, of)
	}
}

// turn waits until no other call works on the volume or the target, in this order: a call that has
// a target waits for nothing more. Where another volume is being mounted, or unmounted, the mount
// table shows neither the one state nor the other.
func (s *Server) turn(ctx context.Context, volume, target string) (done func(), err error) {
	ofVolume, err := s.turns.take(ctx, volume)
	if err != nil {
		return nil, err
	}
	ofTarget, err := s.targets.take(ctx, target)
	if err != nil {
		ofVolume()
		return nil, err
	}
	return func() { ofTarget(); ofVolume() }, nil
}
