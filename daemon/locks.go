package daemon

import (
	"errors"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// poolLocks are the pools that this daemon keeps other daemons of the host out of, by their markers.
// A pool that closes stays locked, because calls that hang in it end some day; one that is not
// configured any more does not.
type poolLocks struct {
	dir, stateDir string

	mu   sync.Mutex
	held map[place]poolLock
}

// place is a pool as it is configured.
type place struct{ name, path string }

type poolLock struct {
	marker string
	*state.PoolLock
}

func newPoolLocks(dir, stateDir string) *poolLocks {
	return &poolLocks{dir: dir, stateDir: stateDir, held: map[place]poolLock{}}
}

// guard takes the lock of the pool that was probed, or verifies that it is still held. An error
// closes the pool.
func (l *poolLocks) guard(r *hostcheck.Report) {
	err := l.take(place{r.Pool, r.Path}, r.Marker)
	if err == nil {
		return
	}
	f := hostcheck.Finding{Reason: plan.ReasonPoolInUse, Severity: hostcheck.Close, Message: err.Error()}
	if !errors.As(err, new(*state.PoolHeldError)) {
		f.Reason, f.Message = plan.ReasonStateUnwritable, "the pool cannot be locked against other daemons: "+err.Error()
	}
	r.Findings = append(r.Findings, f)
}

func (l *poolLocks) take(pool place, marker string) error {
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

// keep releases the locks of all pools but these.
func (l *poolLocks) keep(pools map[place]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for pool, lock := range l.held {
		if !pools[pool] {
			lock.Release()
			delete(l.held, pool)
		}
	}
}
