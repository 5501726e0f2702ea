package ownership

import (
	"errors"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// Locks is the pools that this daemon keeps other daemons of the host out of, by their markers. A
// pool that closes stays locked, because calls that hang in it end some day. It is safe for
// concurrent use.
type Locks struct {
	dir, stateDir string

	mu   sync.Mutex
	held map[Place]poolLock
}

// Place is a pool as it is configured.
type Place struct{ Name, Path string }

type poolLock struct {
	marker string
	*state.PoolLock
}

// NewLocks returns no locks yet. dir is where all daemons of the host have them; stateDir is this
// daemon's own, which the message to another daemon names.
func NewLocks(dir, stateDir string) *Locks {
	return &Locks{dir: dir, stateDir: stateDir, held: map[Place]poolLock{}}
}

// Guard takes the lock of the pool that was probed, or verifies that it is still held. An error is
// a finding that closes the pool.
func (l *Locks) Guard(r *hostcheck.Report) {
	err := l.take(Place{r.Pool, r.Path}, r.Marker)
	if err == nil {
		return
	}
	reason, message := plan.ReasonPoolInUse, err.Error()
	if !errors.As(err, new(*state.PoolHeldError)) {
		reason, message = plan.ReasonStateUnwritable, "the pool cannot be locked against other daemons: "+message
	}
	r.Findings = append(r.Findings, hostcheck.Finding{Reason: reason, Severity: hostcheck.Close, Message: message})
}

func (l *Locks) take(pool Place, marker string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, have := l.held[pool]
	if have && old.marker == marker && old.Held() {
		return nil
	}
	lock, err := state.LockPool(l.dir, marker, l.stateDir)
	if err != nil {
		return err
	}
	if have {
		old.Release()
	}
	l.held[pool] = poolLock{marker, lock}
	return nil
}

// Keep releases the locks of all pools but these: those that are not configured any more.
func (l *Locks) Keep(pools map[Place]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for pool, lock := range l.held {
		if !pools[pool] {
			lock.Release()
			delete(l.held, pool)
		}
	}
}
