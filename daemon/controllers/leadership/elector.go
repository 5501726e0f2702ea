package leadership

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

// ErrNotLeading is returned by what may be done in a shared pool by its Leader alone, to a daemon
// that is not.
var ErrNotLeading = errors.New("another daemon works in the pool")

// Storage is the pool's storage on this host.
type Storage interface {
	// Usable reports whether this daemon can work in the storage, and returns the ID in its marker.
	Usable() (usable bool, marker string)
	// Proof looks for the pool's volumes on the disk.
	Proof(ctx context.Context) Proof
}

// Options are an Elector's. All fields are needed.
type Options struct {
	Pool        string
	Provisioner string
	Identity    string // of this daemon as a holder: one for the host's time since it started
	Node        string
	Leases      Leases
	Storage     Storage
	Events      report.Events // about this node
	// Requested is called with how each try to have the lease ended.
	Requested func(err error)
	Log       *slog.Logger
	Clock     func() time.Duration // BootTime, but for tests
	// Resumed is called when a role begins in which this daemon may have to do, or to tell, what it
	// left to others.
	Resumed func()
}

// Elector looks after one shared pool's lease. A nil Elector is that of a pool that is this node's
// alone: always Leader.
type Elector struct {
	Options
	*state
	said report.Dedup
	look chan struct{} // decide again
}

// New makes an Elector, which stands by; nothing happens before Run.
func New(o Options) *Elector {
	return &Elector{Options: o, state: newState(o.Identity, o.Clock), look: make(chan struct{}, 1)}
}

// Role is what this daemon does in the pool at this moment. It costs no request: before something
// is destroyed, Fence is asked besides.
func (e *Elector) Role() Role {
	if e == nil {
		return Leader
	}
	return e.role()
}

// Leads reports whether the role is Leader.
func (e *Elector) Leads() bool { return e.Role() == Leader }

// Blocked is why no volume is made or removed by this daemon, "" if nothing keeps it from that.
// closed is the same of its own gate alone.
func (e *Elector) Blocked(closed string) string {
	if e.Leads() {
		return closed
	}
	if mismatch, _ := e.mismatchFor(); closed == "" {
		closed = mismatch
	}
	if closed == "" {
		return "no leader at the moment"
	}
	return "no node can work in it; here " + closed
}

// Leader is the identity of the daemon that works in the pool, if it was seen to renew: "" where
// there is none, and for a pool that is not shared.
func (e *Elector) Leader() string {
	if e == nil {
		return ""
	}
	return e.leader()
}

// Fence asks the API server whether this daemon is Leader still, in the same term, and returns
// ErrNotLeading if it is not. A Leader that was paused learns here that its term is over.
func (e *Elector) Fence(ctx context.Context) error {
	if e == nil {
		return nil
	}
	term := e.held()
	if term == nil || !e.Leads() {
		return ErrNotLeading
	}
	lease, err := e.Leases.ReadLease(ctx, e.name())
	if err != nil {
		return err
	}
	if !e.confirm(*term, lease) {
		e.Look()
		return ErrNotLeading
	}
	return nil
}

// Look has the Elector decide again, now. What it depends on has changed: the storage, for example.
func (e *Elector) Look() {
	if e == nil {
		return
	}
	wake.Signal(e.look)
}

// Changed is to be called with each lease that the watch brings, and with nil for one that was
// deleted. Leases of other names are ignored.
func (e *Elector) Changed(name string, lease *Lease) {
	if e != nil && name == e.name() {
		e.watched(lease)
		e.Look()
	}
}

// Run looks after the lease until ctx ends.
func (e *Elector) Run(ctx context.Context) {
	for ctx.Err() == nil {
		wake.Wait(ctx, e.Tend(ctx), e.look)
	}
}

// Tend decides once about the lease and acts, and returns when to do that again if nothing changes.
func (e *Elector) Tend(ctx context.Context) time.Duration {
	if e.mustRead() && !e.readLease(ctx, e.read) {
		return time.Second
	}
	e.reportLost()
	facts := e.gather(ctx)
	action, after := Decide(facts)
	e.reportMismatch()
	if action == StandBy {
		e.Requested(nil)
		return after
	}
	began, was := e.Clock(), e.Role()
	next := e.next(facts, action)
	e.wants(next)
	now, err := e.Leases.WriteLease(ctx, next)
	switch {
	case err != nil:
		e.Requested(err)
		return time.Second
	case now == nil: // it changed meanwhile; a watch that broke would never bring that
		if e.readLease(ctx, e.refused) {
			e.reportLost()
		}
		return time.Second
	}
	e.Requested(nil)
	e.wrote(now, action, began)
	if wrong := facts.Repair(); wrong != "" {
		e.warn(overwrites, plan.ReasonLeaseOverwritten, repaired(next.Name, wrong))
	}
	e.resume(action, was)
	return after
}

// Resign gives the lease up, when the daemon ends and its work has ended.
func (e *Elector) Resign() {
	if e == nil {
		return
	}
	f := e.facts()
	if f.Term == nil || f.Lease == nil || f.Lease.Term != *f.Term {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if now, err := e.Leases.WriteLease(ctx, e.next(f, Resign)); err == nil && now != nil {
		e.wrote(now, Resign, 0)
	}
}

func (e *Elector) name() string { return Name(e.Provisioner, e.Pool) }

// readLease reads the lease from the API server and notes it.
func (e *Elector) readLease(ctx context.Context, note func(*Lease)) bool {
	now, err := e.Leases.ReadLease(ctx, e.name())
	if err != nil {
		e.Requested(err)
		return false
	}
	note(now)
	return true
}

func (e *Elector) gather(ctx context.Context) Facts {
	f := e.facts()
	f.Me, f.Node = e.Identity, e.Node
	f.Usable, f.Marker = e.Storage.Usable()
	if f.Vacant() {
		f.Proof = e.Storage.Proof(ctx)
	}
	e.found(f)
	return f
}

// next is the lease as an action leaves it. Every change of hands begins a new term. A Leader, also
// one that resigns, writes the marker of the storage that it worked in, and not what it read in the
// lease.
func (e *Elector) next(f Facts, action Action) Lease {
	l := Lease{}
	if f.Lease != nil {
		l = *f.Lease
	}
	l.Name, l.Pool = e.name(), e.Pool
	switch action {
	case Lead:
		l.Holder, l.Reporter, l.Marker = e.Identity, false, f.Marker
		l.Term = l.Term.Next(rand.Text())
	case Report:
		l.Holder, l.Reporter = e.Identity, true
		l.Term = l.Term.Next(rand.Text())
	case Resign, Renew:
		if !l.Reporter {
			l.Marker = f.Worked
		}
	}
	if action == Resign {
		l.Holder, l.Reporter = "", false
	}
	return l
}

// resume goes on with the work that a new role brings, and with what was left while renewals failed
// and this daemon stood by.
func (e *Elector) resume(action Action, was Role) {
	switch action {
	case Lead:
		e.Log.Info("works in the pool for all nodes from now on", "pool", e.Pool)
	case Report:
		e.Log.Info("reports for the pool, in which no node can work", "pool", e.Pool)
	case Resign:
		e.Log.Info("leaves the work in the pool to another node", "pool", e.Pool)
		return
	default:
		if was != Standby {
			return
		}
	}
	e.Resumed()
}

// What is reported, each with its own last message.
const (
	mismatches = "mismatch"
	overwrites = "overwritten"
)

// reportMismatch reports that the storage here is not that of the other nodes, when their Leader
// had the time to write the lease anew.
func (e *Elector) reportMismatch() {
	message, lasted := e.mismatchFor()
	switch {
	case message == "":
		e.said.Forget(mismatches)
	case lasted >= 2*Renewal:
		e.warn(mismatches, plan.ReasonStorageMismatch, message)
	}
}

// reportLost reports that the lease was taken away before its time.
func (e *Elector) reportLost() {
	for _, message := range e.takeLost() {
		e.warn(overwrites, plan.ReasonLeaseOverwritten, message)
	}
}

// warn writes a message to the log and about this node, unless it was written lately.
func (e *Elector) warn(what, reason, message string) {
	message = fmt.Sprintf("pool %s: %s", e.Pool, message)
	if e.said.New(what, message) {
		e.Log.Warn(message, "reason", reason, "pool", e.Pool)
		e.Events.Event(report.Node(e.Node), corev1.EventTypeWarning, reason, message)
	}
}
