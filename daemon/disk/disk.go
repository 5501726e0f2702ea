// Package disk is the only way from a decision to a pool's directory. It hands out handles on open
// pools:
//
//	h, ok := pool.Open(ctx)     // ok: volumes may be removed; h.State has whether new ones may be made
//	... facts from h.State and h.Lookup, a decision ...
//	err := h.Trash(name)
//
// A handle carries the state of the gate and the identity of the directory that was checked, both
// from one reading, so that a decision and its act are about the same directory. It ends when the
// pool closes: what is called afterwards, also once the pool is open again, is
// volume.ErrDirectoryReplaced, and nothing is touched. What waits for the disk at that moment
// returns volume.ErrDirectoryReplaced as well, while the call that hangs in the kernel goes on
// alone.
//
// A new volume is promised its size before it is made, in the pool's capacity.Account, or refused
// with a *capacity.FullError. What is not on the disk in the end is free again, also after a call
// that was left behind.
//
// The package will not check a pool (hostcheck does), open or close its gate (package controller
// does), decide anything, or work in a directory itself (package volume does).
package disk

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Storage works in one pool's directory; volume.Pool is the real one. Every call is given the
// identity that was checked, and returns volume.ErrDirectoryReplaced for a directory with another
// one. Every call can be repeated.
type Storage interface {
	Create(ctx context.Context, id mounts.Identity, spec volume.Spec) (dir string, err error)
	Undo(ctx context.Context, id mounts.Identity, pv string) error
	Published(ctx context.Context, id mounts.Identity, pv string) error
	Resize(ctx context.Context, id mounts.Identity, pv string, bytes int64) error
	ResizeFrom(ctx context.Context, id mounts.Identity, pv string, was, bytes int64) (bool, error)
	Usage(ctx context.Context, id mounts.Identity) (usage.Pool, error)
	Measure(ctx context.Context, id mounts.Identity, pv string) (usage.Measured, error)
	Sample(ctx context.Context, id mounts.Identity, pv string) (usage.Sample, error)
	Trash(ctx context.Context, id mounts.Identity, pv string) error
	PutBack(ctx context.Context, id mounts.Identity, pv, claimUID string) error
	Discard(ctx context.Context, id mounts.Identity, pv string) error
	Archive(ctx context.Context, id mounts.Identity, pv string) error
	Retain(ctx context.Context, id mounts.Identity, pv string) error
	Hold(ctx context.Context, id mounts.Identity, pv string, held bool) error
	Purge(ctx context.Context, id mounts.Identity, pv string) (volume.Purged, error)
	Lookup(ctx context.Context, id mounts.Identity, pv string) (record.Record, error)
	LookupArchived(ctx context.Context, id mounts.Identity, pv, claimUID string) (record.Record, error)
	Exists(ctx context.Context, id mounts.Identity, directory string) (bool, error)
	List(ctx context.Context, id mounts.Identity) (volume.Inventory, error)
	Sweep(ctx context.Context, id mounts.Identity) (int, error)
	Remark(ctx context.Context, id mounts.Identity, marker hostcheck.Marker) error
}

// Announcing is a Storage in which other processes make volumes, too, and say so.
type Announcing interface {
	Announced(ctx context.Context, id mounts.Identity) (time.Time, error)
}

// Gate knows whether pools are open; gate.Gate is the real one.
type Gate interface {
	State(pool string) gate.State
}

// Options says which pool.
type Options struct {
	Name    string // of the pool at the gate
	Gate    Gate
	Storage Storage
	Label   string // the SELinux label of new volumes, "" where there is no SELinux
	// Look makes the pool be looked at again. It is called while a call takes longer than Slow, and
	// when a call ends that a closed pool left behind. It must not block.
	Look func()
	Slow time.Duration
	// Account is what the pool has promised; nil is one that nothing else knows. Overcommit is how
	// many times the filesystem may be promised, 0 is once.
	Account    *capacity.Account
	Overcommit float64
	// Recount is called when the account may be wrong until the records are read again, which it
	// must not wait for. nil is not called.
	Recount func()
}

// Pool is the way to one pool's directory. It is safe for concurrent use.
type Pool struct {
	Options
	tracker  *tracker
	slots    chan struct{} // held by the calls that make a volume now
	counting chan struct{} // held by the call that counts what is promised
	// announced is up to when volumes of other processes were counted, in ns
	announced atomic.Int64
}

// createSlots is how many volumes are made in a pool at once, of the claims that are worked on:
// enough for disks that are slow to respond, because those who wait for the same directory's fsync
// share it. More of them take processor time from the API server (make bench).
const createSlots = 16

// New returns the way to a pool. It touches nothing.
func New(o Options) *Pool {
	if o.Account == nil {
		o.Account = capacity.NewBook().Account(o.Name)
	}
	if o.Recount == nil {
		o.Recount = func() {}
	}
	o.Overcommit = cmp.Or(o.Overcommit, 1)
	return &Pool{
		Options: o, tracker: &tracker{look: o.Look, slow: o.Slow},
		slots: make(chan struct{}, createSlots), counting: make(chan struct{}, 1),
	}
}

// Open returns a handle on the pool. ok is false while nothing may be removed in it: then only the
// handle's State can be used.
func (p *Pool) Open(ctx context.Context) (h Handle, ok bool) {
	// The channel first: it ends the handle if the pool closes after the state was read.
	closed := p.tracker.whenClosed()
	return p.handle(ctx, p.Gate.State(p.Name), closed)
}

// Opening returns a handle on a pool that was found in order just now, for what has to be read and
// written before its gate opens. ok is as for Open.
func (p *Pool) Opening(ctx context.Context, r hostcheck.Report) (h Handle, ok bool) {
	return p.handle(ctx, gate.State{Report: r, Checked: true}, p.tracker.whenClosed())
}

func (p *Pool) handle(ctx context.Context, s gate.State, closed <-chan struct{}) (Handle, bool) {
	h := Handle{State: s, ctx: ctx, pool: p, id: s.Identity(), closed: closed}
	return h, s.Removable()
}

// Lags reports whether the storage is slow: the last look at it took as long as Slow, or a call has
// taken so long by now, for whatever reason.
func (p *Pool) Lags() bool {
	return p.Gate.State(p.Name).Report.Took >= p.Slow || p.tracker.late()
}

// Close ends all handles, and returns volume.ErrDirectoryReplaced from the calls that wait. It is
// called after the gate closed.
func (p *Pool) Close() { p.tracker.close() }

// tracker knows the calls that are under way in a pool, and tells them that the pool was closed.
// All calls share one timer: one for each would wake a thread each time.
type tracker struct {
	look func()
	slow time.Duration // how long a call may take before the pool is looked at, again and again

	mu     sync.Mutex
	closed chan struct{}
	calls  map[*byte]time.Time // when each that is under way began
	armed  bool                // overdue will be called
}

// whenClosed returns a channel that is closed when the pool closes next.
func (t *tracker) whenClosed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed == nil {
		t.closed = make(chan struct{})
	}
	return t.closed
}

func (t *tracker) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed != nil {
		close(t.closed)
		t.closed = nil
	}
}

// begin notes a call for as long as its caller waits for it, that is until end.
func (t *tracker) begin() (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls == nil {
		t.calls = map[*byte]time.Time{}
	}
	call := new(byte)
	t.calls[call] = time.Now()
	if !t.armed {
		t.armed = true
		t.arm()
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.calls, call)
	}
}

func (t *tracker) arm() { time.AfterFunc(max(t.slow, time.Millisecond), t.overdue) }

// overdue has the pool looked at if a call takes long.
func (t *tracker) overdue() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.armed = len(t.calls) > 0; !t.armed {
		return
	}
	t.arm()
	if t.isLate() {
		t.look()
	}
}

// late reports whether a call takes long.
func (t *tracker) late() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isLate()
}

func (t *tracker) isLate() bool {
	for _, began := range t.calls {
		if time.Since(began) >= t.slow {
			return true
		}
	}
	return false
}
