package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// shutter tells those who wait for a pool's disk that the pool was closed meanwhile.
type shutter struct {
	kick  chan struct{} // makes the pool's loop look at the pool
	every time.Duration // how long a call may take before the pool is looked at, again and again

	mu     sync.Mutex
	closed chan struct{}
	calls  map[*byte]time.Time // when each that is under way began
	armed  bool                // overdue will be called
}

// shut is closed when the pool's gate closes next.
func (s *shutter) shut() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next()
}

func (s *shutter) next() <-chan struct{} {
	if s.closed == nil {
		s.closed = make(chan struct{})
	}
	return s.closed
}

// drop lets everybody go who waits now.
func (s *shutter) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		close(s.closed)
		s.closed = nil
	}
}

// begin notes a call for as long as somebody waits for it, and answers shut. All calls share one timer:
// one for each would wake a thread each time.
func (s *shutter) begin() (shut <-chan struct{}, end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = map[*byte]time.Time{}
	}
	call := new(byte)
	s.calls[call] = time.Now()
	if !s.armed {
		s.armed = true
		s.arm()
	}
	return s.next(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.calls, call)
	}
}

func (s *shutter) arm() { time.AfterFunc(max(s.every, time.Millisecond), s.overdue) }

// overdue makes the pool be looked at if a call takes long.
func (s *shutter) overdue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed = len(s.calls) > 0; !s.armed {
		return
	}
	s.arm()
	for _, began := range s.calls {
		if time.Since(began) >= s.every {
			signal(s.kick)
			return
		}
	}
}

// answering is a disk that nobody waits for once its pool is closed. A call that takes long makes the
// pool be looked at: Probe knows of calls that get no answer, also where its own questions do. One that
// hangs in the kernel goes on alone, and the worker that made it tells the claim. There are at most as many
// such calls as workers and helpers, because a closed pool gets no new ones. Each call can be repeated, so
// the one left behind does no harm when it ends; what it made and nobody wants any more is found by its
// record.
type answering struct {
	Disk
	shutter *shutter
	seats   chan struct{} // held by those who make a volume now
}

// seats is how many volumes are made in a pool at once, of the claims that are worked on: enough for
// disks that are slow to answer, because those who wait for the same directory's fsync share it. More of
// them take processor time from the API server (make bench).
const seats = 16

var errShut = fmt.Errorf("%w: it was closed before the call was answered", ErrMoved)

func within[T any](ctx context.Context, s *shutter, call func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	shut, end := s.begin()
	defer end()
	done := make(chan answer, 1)
	go func() {
		value, err := call()
		done <- answer{value, err}
		select {
		case <-shut: // what kept the pool closed may have been this
			signal(s.kick)
		default:
		}
	}()
	var none T
	select {
	case a := <-done:
		return a.value, a.err
	case <-shut:
		return none, errShut
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

func (a answering) do(ctx context.Context, call func() error) error {
	_, err := within(ctx, a.shutter, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

func (a answering) Create(ctx context.Context, id mounts.Identity, m Making) error {
	select {
	case a.seats <- struct{}{}:
		defer func() { <-a.seats }() // also when the call is left behind: it keeps nobody from a pool that opens again
	case <-a.shutter.shut():
		return errShut
	case <-ctx.Done():
		return ctx.Err()
	}
	return a.do(ctx, func() error { return a.Disk.Create(ctx, id, m) })
}

func (a answering) Undo(ctx context.Context, id mounts.Identity, pv string) error {
	return a.do(ctx, func() error { return a.Disk.Undo(ctx, id, pv) })
}

func (a answering) Published(ctx context.Context, id mounts.Identity, pv string) error {
	return a.do(ctx, func() error { return a.Disk.Published(ctx, id, pv) })
}

func (a answering) Trash(ctx context.Context, id mounts.Identity, pv string) error {
	return a.do(ctx, func() error { return a.Disk.Trash(ctx, id, pv) })
}

func (a answering) PutBack(ctx context.Context, id mounts.Identity, pv, claimUID string) error {
	return a.do(ctx, func() error { return a.Disk.PutBack(ctx, id, pv, claimUID) })
}

func (a answering) Discard(ctx context.Context, id mounts.Identity, pv string) error {
	return a.do(ctx, func() error { return a.Disk.Discard(ctx, id, pv) })
}

func (a answering) Archived(ctx context.Context, id mounts.Identity, pv, claimUID string) (*record.Record, error) {
	return within(ctx, a.shutter, func() (*record.Record, error) { return a.Disk.Archived(ctx, id, pv, claimUID) })
}

func (a answering) Archive(ctx context.Context, id mounts.Identity, pv string) error {
	return a.do(ctx, func() error { return a.Disk.Archive(ctx, id, pv) })
}

func (a answering) Retain(ctx context.Context, id mounts.Identity, pv string) error {
	return a.do(ctx, func() error { return a.Disk.Retain(ctx, id, pv) })
}

func (a answering) Purge(ctx context.Context, id mounts.Identity, pv string) error {
	return a.do(ctx, func() error { return a.Disk.Purge(ctx, id, pv) })
}

func (a answering) Lookup(ctx context.Context, id mounts.Identity, pv string) (*record.Record, error) {
	return within(ctx, a.shutter, func() (*record.Record, error) { return a.Disk.Lookup(ctx, id, pv) })
}

func (a answering) Exists(ctx context.Context, id mounts.Identity, directory string) (bool, error) {
	return within(ctx, a.shutter, func() (bool, error) { return a.Disk.Exists(ctx, id, directory) })
}

func (a answering) Records(ctx context.Context, id mounts.Identity) ([]record.Record, error) {
	return within(ctx, a.shutter, func() ([]record.Record, error) { return a.Disk.Records(ctx, id) })
}

func (a answering) Sweep(ctx context.Context, id mounts.Identity) (int, error) {
	return within(ctx, a.shutter, func() (int, error) { return a.Disk.Sweep(ctx, id) })
}
