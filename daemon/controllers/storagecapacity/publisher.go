package storagecapacity

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

// Options are a Publisher's. All fields are needed.
type Options struct {
	Provisioner string
	Node        string // this node's label value
	Enabled     bool   // false: what was published is withdrawn
	API         API
	Log         *slog.Logger
	// Wanted returns an object for each class, ok is false as long as one of them is not known.
	Wanted func() (all []Object, ok bool)
	// Classes returns the names of the classes of the provisioner.
	Classes func() []string
	// Requested is called with how each turn ended.
	Requested func(err error)
	// Reviewed is called after each look at the driver; mine says that this daemon reviewed then.
	Reviewed func(ctx context.Context, mine bool)
	// Mend is the command that gives the daemons the rights that they need.
	Mend string
}

// Publisher keeps a node's objects. Its methods can be called concurrently, and do not block.
type Publisher struct {
	Options
	changed chan struct{}
	mended  chan struct{}
	urgent  atomic.Bool
	refused refusals
	nodes   atomic.Int64 // that publish something, as the driver said when it was read last; 0: nothing is compared

	// Of the goroutine of Run alone.
	budget    budget
	published map[string]Object // by name; nil: not read
	again     time.Time         // when they are read again
	last      kind              // of what was done last
	high      time.Time         // since when an object is too high; zero: none is
	seen      Driver            // as it was read last
	next      time.Time         // when it is read next
	due       time.Time         // what was reviewed before counts for nothing: this node or a class was not known
	scheduled time.Time         // when next was set last
	leaving   bool              // a withdrawal began and has not ended
}

// New makes a Publisher; nothing happens before Run.
func New(o Options) *Publisher {
	return &Publisher{Options: o,
		changed: make(chan struct{}, 1), mended: make(chan struct{}, 1),
		refused: refusals{classes: map[string]refusal{}}}
}

// Changed has the objects compared with what is wanted now.
func (p *Publisher) Changed() { wake.Signal(p.changed) }

// Retry ends the pause after an error: what the requests failed with was mended.
func (p *Publisher) Retry() { wake.Signal(p.mended) }

// Refused is called when a claim was refused that the scheduler sent here: an object that is too
// high does not wait.
func (p *Publisher) Refused() {
	p.urgent.Store(true)
	p.Changed()
}

// Compared returns how many nodes publish what the scheduler compares, as this node knows it, which
// looks every few minutes: 0 if it compares nothing, or this node publishes nothing.
func (p *Publisher) Compared() int { return int(p.nodes.Load()) }

const (
	// failedWait is the pause after an error of the API.
	failedWait = 10 * time.Second
	// refusedWait is the pause after an error that an administrator has to mend.
	refusedWait = time.Minute
)

// Run publishes until ctx ends. It leaves the objects as they are: a restart is no reason to choose
// other nodes.
func (p *Publisher) Run(ctx context.Context) {
	if !plan.DriverNamePossible(p.Provisioner) {
		return
	}
	for ctx.Err() == nil {
		wait, err := p.turn(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			wait = p.failed(err)
		default:
			p.Requested(p.firstRefused())
		}
		select {
		case <-ctx.Done():
		case <-p.wake(err):
		case <-p.mended:
			p.retryRefused()
		case <-time.After(wait):
		}
	}
}

// failed passes an error on, and returns when to try again.
func (p *Publisher) failed(err error) time.Duration {
	p.published = nil
	mend, wait := "", failedWait
	if apierrors.IsForbidden(err) {
		mend, wait = "; an administrator of the cluster mends it with: "+p.Mend, refusedWait
	}
	p.Requested(fmt.Errorf("what this node can give is not published for the scheduler: %w%s", err, mend))
	return wait
}

// wake is what ends a pause early: nothing, after an error.
func (p *Publisher) wake(err error) <-chan struct{} {
	if err != nil || p.published == nil {
		return nil
	}
	return p.changed
}

// turn does what is due and returns when to look again without a change.
func (p *Publisher) turn(ctx context.Context) (time.Duration, error) {
	if p.published == nil {
		driver, err := p.driver(ctx)
		if err != nil || driver == nil {
			return reviewEvery, err // no administrator asks for it
		}
		if !p.Enabled {
			return p.standBy(ctx, *driver)
		}
		p.seen, p.next = *driver, time.Time{}
	}
	if err := p.readAgain(ctx); err != nil {
		return 0, err
	}
	wanted, ok := p.Wanted()
	if !ok {
		return time.Second, nil
	}
	wait, err := p.sync(ctx, wanted)
	return min(wait, max(time.Second, time.Until(p.again))), err
}

// readAgain reads this node's objects, unless that was done lately. A restored etcd has those of an
// earlier time, and people change them: without it the scheduler would choose no node that had no
// room then until its room changes.
func (p *Publisher) readAgain(ctx context.Context) error {
	if p.published != nil && time.Now().Before(p.again) {
		return nil
	}
	all, err := p.paid().Capacities(ctx, p.Node)
	if err != nil {
		return err
	}
	p.published, p.again = map[string]Object{}, time.Now().Add(reviewEvery-jitter())
	for _, o := range all {
		p.published[o.Name] = o
	}
	return nil
}

// sync does what is due as long as the budget has some requests, and returns how long to wait after
// that.
func (p *Publisher) sync(ctx context.Context, wanted []Object) (time.Duration, error) {
	for p.published != nil {
		now := time.Now()
		wanted, refused := p.tryable(wanted, now)
		due := stepsTo(p.published, wanted)
		early := min(refused, p.holdBack(&due, now), p.addReview(&due, wanted, now))
		next, found := due.after(p.last)
		if !found {
			return early, nil
		}
		if wait := p.budget.wait(now); wait > 0 {
			return wait, nil
		}
		if err := p.write(ctx, next, *due[next]); err != nil {
			return 0, err
		}
		p.last = next
	}
	return reviewEvery, nil
}

// holdBack takes out what is too high as long as that can wait, and returns how much longer.
func (p *Publisher) holdBack(due *steps, now time.Time) time.Duration {
	if due[lower] == nil {
		p.high = time.Time{}
		p.urgent.Store(false)
		return reviewEvery
	}
	if p.high.IsZero() {
		p.high = now
	}
	early := lowerAfter - now.Sub(p.high)
	if early > 0 && !p.urgent.Load() {
		due[lower] = nil
	}
	return early
}

func (p *Publisher) do(ctx context.Context, what kind, o Object) error {
	switch what {
	case review:
		return p.look(ctx)
	case remove:
		delete(p.published, o.Name)
		return p.paid().DeleteCapacity(ctx, o.Name)
	}
	if _, there := p.published[o.Name]; there {
		found, err := p.paid().UpdateCapacity(ctx, o)
		if err != nil {
			return err
		}
		if found {
			p.published[o.Name] = o
			return nil
		}
	}
	if err := p.paid().CreateCapacity(ctx, o); err != nil {
		return err
	}
	p.published[o.Name], p.due = o, time.Now()
	return nil
}
