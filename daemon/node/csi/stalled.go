package csi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/keylock"
)

// ErrHangs: storage does not respond. Nothing more is asked of it for as long as mostStuck calls
// wait.
var ErrHangs = errors.New("does not respond")

// mostStuck calls of one filesystem may be in the kernel, each with a thread: kubelet asks for the
// statistics of each volume every minute, for many at once, and a filesystem may hang for days.
const mostStuck = 4

// stalledCalls lets mostStuck calls at a time work, and counts those that were left behind, by what
// they wait for.
type stalledCalls struct {
	within time.Duration // that a call is waited for
	turns  keylock.Locks

	mu    sync.Mutex
	stuck map[string]int
}

func newStalledCalls(within time.Duration) stalledCalls {
	return stalledCalls{within: within, turns: keylock.Locks{Most: mostStuck}}
}

// await calls work when it has a turn, and does not wait for both longer than p.within, or than ctx
// lasts. of is whose storage it waits for. What work returns too late is given to late, which may
// be nil; its turn lasts until then.
func await[T any](ctx context.Context, p *stalledCalls, of string, work func(context.Context) (T, error), late func(T)) (T, error) {
	var none T
	if !p.may(of) {
		return none, fmt.Errorf("%s %w: earlier calls wait", of, ErrHangs)
	}
	type result struct {
		value T
		err   error
	}
	ctx, cancel := context.WithTimeout(ctx, p.within)
	defer cancel()
	end, err := p.turns.Take(ctx, of)
	if err != nil {
		return none, fmt.Errorf("%s %w within %s: earlier calls wait", of, ErrHangs, p.within)
	}
	done := make(chan result)
	left := make(chan struct{})
	go func() {
		defer end()
		value, err := work(ctx)
		select {
		case done <- result{value, err}:
		case <-left:
			p.add(of, -1)
			if late != nil && err == nil {
				late(value)
			}
		}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		p.add(of, 1)
		close(left)
		return none, fmt.Errorf("%s %w within %s", of, ErrHangs, p.within)
	}
}

func (p *stalledCalls) may(of string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stuck[of] < mostStuck
}

func (p *stalledCalls) add(of string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stuck == nil {
		p.stuck = map[string]int{}
	}
	if p.stuck[of] += n; p.stuck[of] == 0 {
		delete(p.stuck, of)
	}
}

// turn waits until no other call works on the volume or the target, in this order: a call that has
// a target waits for nothing more. Where another volume is being mounted, or unmounted, the mount
// table shows neither the one state nor the other.
func (s *Server) turn(ctx context.Context, volume, target string) (done func(), err error) {
	ofVolume, err := s.turns.Take(ctx, volume)
	if err != nil {
		return nil, err
	}
	ofTarget, err := s.targets.Take(ctx, target)
	if err != nil {
		ofVolume()
		return nil, err
	}
	return func() { ofTarget(); ofVolume() }, nil
}
