package volume

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// Of a pool with project quotas, a record is changed by the daemon and by Apply, two processes.
// Each locks the directory of the records for that long: the calls of the daemon share it, because
// they lock volumes among themselves.

// share keeps Apply from changing records until the session ends.
func (s *session) share(ctx context.Context) error {
	if s.quotas == nil {
		return nil
	}
	volumes, err := s.dir(volumesDir)
	if err != nil {
		return nil // a call that needs it returns the error
	}
	for {
		err := openat.Retry(func() error { return unix.Flock(volumes, unix.LOCK_SH|unix.LOCK_NB) })
		if !errors.Is(err, unix.EWOULDBLOCK) {
			s.pool.excluded.over()
			return wrap("locking "+volumesDir, err)
		}
		if s.pool.excluded.tooLong(time.Now()) {
			return fmt.Errorf("%w, and has had the records locked for %v", ErrApplying, excludedMost)
		}
		if err := pause(ctx, lockTries); err != nil {
			return err
		}
	}
}

// excludedMost is how long Apply may have the records locked: it reads them all, and writes one.
// Where it has them for longer, its process was stopped, or its disk hangs: the calls of the daemon
// are refused then.
const excludedMost = 5 * time.Second

// excluded is since when the calls of a pool have found the records locked. The zero value is
// ready.
type excluded struct {
	mu          sync.Mutex
	since, last time.Time
}

// tooLong notes that the records are locked now, and reports whether calls have found that for too
// long: the next ones do not wait. What was found longer ago, or before a call found them free, was
// another lock.
func (e *excluded) tooLong(now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now.Sub(e.last) > excludedMost {
		e.since = now
	}
	e.last = now
	return now.Sub(e.since) >= excludedMost
}

// over notes that a call found the records free.
func (e *excluded) over() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.since, e.last = time.Time{}, time.Time{}
}

// lockTries is the time between two tries to lock the records.
const lockTries = 5 * time.Millisecond

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// turns is when Apply may lock the records again. It is used by one call at a time, which holds the
// lock of only.
type turns struct{ locked, next time.Time }

// end has the calls that wait go first: Apply leaves the records free for as long as it had them
// locked, and for some tries at least. flock(2) is not fair, and Apply goes on to the next volume
// within a millisecond.
func (t *turns) end(now time.Time) { t.next = now.Add(max(now.Sub(t.locked), 3*lockTries)) }

// exclude waits until no call of the daemon is under way that may change a record.
func (s *session) exclude(ctx context.Context) error {
	volumes, err := s.dir(volumesDir)
	if err != nil {
		return err
	}
	if err := pause(ctx, time.Until(s.pool.turns.next)); err != nil {
		return err
	}
	for {
		err := openat.Retry(func() error { return unix.Flock(volumes, unix.LOCK_EX|unix.LOCK_NB) })
		if !errors.Is(err, unix.EWOULDBLOCK) {
			s.pool.turns.locked = time.Now()
			return wrap("locking "+volumesDir, err)
		}
		if err := pause(ctx, lockTries); err != nil {
			return err
		}
	}
}

// admit ends exclude.
func (s *session) admit() {
	_ = unix.Flock(s.dirs[volumesDir], unix.LOCK_UN)
	s.pool.turns.end(time.Now())
}
