// Package presence keeps one Lease of a node's daemons: it says which host works under the node's
// name, and in an annotation for each daemon the state of its pools (State), for people. Two hosts
// with one name are told apart by it where the Node itself does not report its host, because it has
// no kubelet.
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

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

// The times of a lease.
const (
	Duration = 90 * time.Second // without a renewal, until another host takes the name
	Renewal  = 30 * time.Second // between renewals
	// Every is between renewals where the Node tells its host, and the lease is for people alone.
	Every = 5 * time.Minute
	// Pace is the least time between two writes, however often the state changes.
	Pace = 10 * time.Second
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
	// States are what the daemons of the node tell of themselves, by their provisioners (Key).
	States map[string]string
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
	// it is. Otherwise Other is "".
	Needed func() bool
	// First is whether this host has not written the lease before. It is created without being read
	// then, unless it is Needed.
	First bool
	// Key is this daemon's among Lease.States. State returns what is kept there, "" for nothing yet
	// or no more, and what of it is worth a write before the next renewal.
	Key   string
	State func() (text, news string)
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
	held *Lease // as it was written last
	news string // of the state that was written last
	// written is when that was, and next when it is renewed, by Clock.
	written, next time.Duration
	seen          Lease // another host's, as it was read last
	since         time.Duration
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
func (k *Keeper) NodeChanged() { wake.Signal(k.wake) }

// Run keeps the lease until ctx ends. It stays then: a host that stopped is silent after Duration.
func (k *Keeper) Run(ctx context.Context) {
	for ctx.Err() == nil {
		wait, needed := Pace, k.Needed()
		if !needed {
			k.found("")
		}
		if text, news := k.State(); needed || text != "" {
			var asked bool
			var err error
			wait, asked, err = k.turn(ctx, needed, text, news)
			if asked && ctx.Err() == nil {
				k.Requested(err)
			}
		}
		wake.Wait(ctx, wait, k.wake)
	}
}

// turn renews the lease if that is due, takes it, or looks at the one of another host, and returns
// when to do so again, and whether it asked the API server.
func (k *Keeper) turn(ctx context.Context, needed bool, text, news string) (
	wait time.Duration, asked bool, err error) {
	every := Every
	if needed {
		every = Renewal
	}
	if due := min(k.next, k.written+every) - k.Clock(); k.held != nil && due > 0 && news == k.news {
		return min(due, Pace), false, nil
	}
	lease := k.held
	if lease == nil && k.First && !needed {
		k.First, lease = false, &Lease{}
	}
	if lease == nil {
		there, err := k.API.ReadNodeLease(ctx)
		if err != nil {
			return k.failed(err), true, err
		}
		if needed && there != nil && k.others(*there) {
			return recheck, true, nil
		}
		lease = there
	}
	if lease == nil {
		lease = &Lease{}
	}
	lease.Holder, lease.States = k.Identity, k.states(*lease, text)
	now, err := k.API.WriteNodeLease(ctx, *lease)
	k.held = now
	switch {
	case err != nil:
		return k.failed(err), true, err
	case now == nil:
		return time.Second, true, nil // it is there, or was written or deleted meanwhile: it is read
	}
	k.found("")
	k.news, k.written = news, k.Clock()
	k.next = k.written + every - rand.N(every/6)
	return Pace, true, nil
}

// states are those of the node's daemons, with this one's. Those that are long over make room.
func (k *Keeper) states(l Lease, text string) map[string]string {
	all := map[string]string{}
	for key, of := range l.States {
		if key != k.Key && len(all) < mostStates-1 && !forgotten(of) {
			all[key] = of
		}
	}
	if text != "" {
		all[k.Key] = text
	}
	return all
}

// failed returns when to try again after an error. A right that is missing, or a policy that
// refuses, keeps no daemon from its work: then two hosts with one name are not told apart.
func (k *Keeper) failed(err error) time.Duration {
	k.held = nil
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		return recheck
	}
	k.found("")
	return Renewal
}

// others reports whether a lease is another host's that does not seem to be gone.
func (k *Keeper) others(l Lease) bool {
	if l.Holder == k.Identity || l.Holder == "" {
		return false
	}
	if l.UID != k.seen.UID || l.Version != k.seen.Version {
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
