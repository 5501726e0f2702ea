// Package presence keeps one Lease of a node's daemon: it says which host works under the node's
// name, and that it still does. Two hosts with one name are told apart by it where the Node itself
// does not report its host, because it has no kubelet.
//
// It neither elects a daemon (package leadership) nor closes a pool (package ownership), and it
// compares no clocks: a lease is abandoned when this host saw it unchanged for Duration.
package presence

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The times of a lease.
const (
	Duration = 90 * time.Second // without a renewal, until another host takes the name
	Renewal  = 30 * time.Second // between renewals
	// recheck is how often the lease of another host is read, and how soon a request that failed is
	// repeated.
	recheck = 5 * time.Second
)

// Name is the name of a node's lease, which all its daemons have in common; "" if no object can have
// it. The lease of a pool begins with the pool's name (leadership.Name), and no pool is called that.
func Name(node string) string {
	const before, most = "hostpath-provisioner-node.", 253 // of an object's name
	if len(before)+len(node) > most {
		return ""
	}
	return before + node
}

// Lease is the Lease object of a node.
type Lease struct {
	Holder string // the identity of a host's daemon (leadership.Identity)
	UID    string // "" in one that does not exist yet
	// Version is the object's, for a write that is refused if it changed meanwhile.
	Version string
}

// API reads and writes the lease of this node.
type API interface {
	// ReadNodeLease returns nil without an error for one that does not exist.
	ReadNodeLease(ctx context.Context) (*Lease, error)
	// WriteNodeLease writes the lease that still is at l.Version, or creates it where that is "". It
	// returns the lease as it is now, nil without an error if it changed meanwhile.
	WriteNodeLease(ctx context.Context, l Lease) (*Lease, error)
}

// Options are a Keeper's. All fields are needed.
type Options struct {
	Identity string // of this host's daemon
	API      API
	Clock    func() time.Duration // monotonic, also while the host sleeps
	Changed  func()               // is called when Other changed; it must not block
	// Needed reports whether the Node, which was read before Run, does not tell by itself which host
	// it is. Otherwise no request is sent, and Other is "".
	Needed func() bool
	// Requested is called with how each turn ended.
	Requested func(err error)
}

// Keeper keeps the lease. Other is safe for concurrent use.
type Keeper struct {
	Options

	mu    sync.Mutex
	other string
	once  sync.Once
	known chan struct{}
	wake  chan struct{}

	// Of the goroutine of Run alone.
	held  *Lease // as it was written last
	seen  Lease  // another host's, as it was read last
	since time.Duration
}

// New returns a Keeper that knows nothing; nothing happens before Run.
func New(o Options) *Keeper {
	return &Keeper{Options: o, known: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// Other returns the identity of another host that works under this node's name, "" if none does,
// as far as that is known.
func (k *Keeper) Other() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.other
}

// Known is closed once the API server said who has the name, or refused to, or that is not Needed.
func (k *Keeper) Known() <-chan struct{} { return k.known }

// NodeChanged is called when Needed may return something else.
func (k *Keeper) NodeChanged() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Run keeps the lease until ctx ends. It stays then: a host that stopped is silent after Duration.
func (k *Keeper) Run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := Renewal
		if k.Needed() {
			var err error
			if wait, err = k.turn(ctx); ctx.Err() == nil {
				k.Requested(err)
			}
		} else {
			k.held = nil
			k.found("")
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-k.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// turn renews the lease, takes it, or looks at the one of another host, and returns when to do so
// again.
func (k *Keeper) turn(ctx context.Context) (time.Duration, error) {
	lease := k.held
	if lease == nil {
		there, err := k.API.ReadNodeLease(ctx)
		if err != nil {
			return k.failed(err)
		}
		if there != nil && k.others(*there) {
			return recheck, nil
		}
		if lease = there; lease == nil {
			lease = &Lease{}
		}
	}
	lease.Holder = k.Identity
	now, err := k.API.WriteNodeLease(ctx, *lease)
	k.held = now
	switch {
	case err != nil:
		return k.failed(err)
	case now == nil:
		return time.Second, nil // another host wrote it, or it was deleted: it is read
	}
	k.found("")
	return Renewal - rand.N(Renewal/6), nil
}

// failed returns when to try again after an error. A right that is missing, or a policy that
// refuses, keeps no daemon from its work: then two hosts with one name are not told apart.
func (k *Keeper) failed(err error) (time.Duration, error) {
	k.held = nil
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		return recheck, err
	}
	k.found("")
	return Renewal, err
}

// others reports whether a lease is another host's that does not seem to be gone.
func (k *Keeper) others(l Lease) bool {
	if l.Holder == k.Identity || l.Holder == "" {
		return false
	}
	if l != k.seen {
		k.seen, k.since = l, k.Clock()
	}
	if k.Clock()-k.since >= Duration {
		return false
	}
	k.found(l.Holder)
	return true
}

// found notes who works under the name.
func (k *Keeper) found(other string) {
	k.mu.Lock()
	changed := k.other != other
	k.other = other
	k.mu.Unlock()
	k.once.Do(func() { close(k.known) })
	if changed {
		k.Changed()
	}
}
