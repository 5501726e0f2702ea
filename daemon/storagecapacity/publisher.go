package storagecapacity

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/report"
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
	// Mend is the command that gives the daemons the rights that they need.
	Mend string
}

// Publisher keeps a node's objects. Its methods can be called concurrently, and do not block.
type Publisher struct {
	Options
	changed chan struct{}
	urgent  atomic.Bool
	nodes   atomic.Int64 // that publish something, as the driver said when it was read last; 0: nothing is compared

	// Of the goroutine of Run alone.
	budget    budget
	published map[string]Object // by name; nil: not read
	read      time.Time         // when it was
	high      time.Time         // since when an object is too high; zero: none is
	reviewed  time.Time         // when a review was done, by this daemon or another one
	later     time.Duration     // by which the next one is later than after reviewEvery
	tried     time.Time         // when the driver was looked at last
	classes   []string
	failing   time.Time // since when the API returns errors; zero: it does not
	warned    string    // the error that was logged
	leaving   bool      // a withdrawal began and has not ended
	due       time.Time // what was reviewed before counts for nothing: this node or the classes were not known
}

// New makes a Publisher; nothing happens before Run.
func New(o Options) *Publisher { return &Publisher{Options: o, changed: make(chan struct{}, 1)} }

// Changed has the objects compared with what is wanted now.
func (p *Publisher) Changed() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Refused is called when a claim was refused that the scheduler sent here: an object that is too high does not wait.
func (p *Publisher) Refused() {
	p.urgent.Store(true)
	p.Changed()
}

// Compared returns how many nodes publish what the scheduler compares, as this node knows it, which looks every few minutes: 0 if
// it compares nothing, or this node publishes nothing.
func (p *Publisher) Compared() int { return int(p.nodes.Load()) }

// driver reads the CSIDriver; nil if there is none of ours.
func (p *Publisher) driver(ctx context.Context) (*Driver, error) {
	d, err := p.API.Driver(ctx)
	if err == nil && d != nil && !d.Ours {
		d = nil
	}
	switch {
	case err != nil:
	case d != nil && d.Enabled && p.Enabled:
		p.nodes.Store(int64(max(1, d.Publishing)))
	default:
		p.nodes.Store(0)
	}
	return d, err
}

const (
	// reviewEvery is how often the CSIDriver is looked at, and the nodes that publish nothing.
	reviewEvery = 5 * time.Minute
	// failedWait is the pause after an error of the API.
	failedWait = 10 * time.Second
	// refusedWait is the pause after an error that an administrator has to mend.
	refusedWait = time.Minute
	// failingLong is how long the API returns other errors before that is logged as well: package kube reports one that is away.
	failingLong = 10 * time.Minute
)

// Run publishes until ctx ends. It leaves the objects as they are: a restart is no reason to choose other nodes.
func (p *Publisher) Run(ctx context.Context) {
	if !plan.DriverNamePossible(p.Provisioner) {
		return
	}
	for ctx.Err() == nil {
		wait, err := p.turn(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			wait = p.failed(err, time.Now())
		default:
			p.recovered()
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-p.wake(err):
		case <-timer.C:
		}
		timer.Stop()
	}
}

// failed logs an error that will not pass by itself, and one that lasts, once. It returns when to try again.
func (p *Publisher) failed(err error, now time.Time) time.Duration {
	p.published = nil
	if p.failing.IsZero() {
		p.failing = now
	}
	message, wait := "what this node can give is not published for the scheduler: "+err.Error(), failedWait
	switch refused := report.Permanent(err); {
	case refused:
		message, wait = message+"; an administrator of the cluster mends it with: "+p.Mend, refusedWait
	case now.Sub(p.failing) < failingLong:
		p.Log.Debug(message)
		return wait
	}
	if message != p.warned {
		p.warned = message
		p.Log.Warn(message, "reason", plan.ReasonAPIRefused)
	}
	return wait
}

// recovered ends what failed logged.
func (p *Publisher) recovered() {
	if p.warned != "" {
		p.Log.Info("what this node can give is published for the scheduler again", "reason", plan.ReasonAPIAvailable)
	}
	p.failing, p.warned = time.Time{}, ""
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
			return reviewEvery, p.Withdraw(ctx, true)
		}
	}
	if err := p.readAgain(ctx); err != nil {
		return 0, err
	}
	wanted, ok := p.Wanted()
	if !ok {
		return time.Second, nil
	}
	if wait, err := p.sync(ctx, wanted); wait > 0 || err != nil {
		return wait, err
	}
	wait, err := p.review(ctx)
	return min(wait, max(time.Second, reviewEvery-time.Since(p.read))), err
}

// readAgain reads this node's objects, unless that was done lately. A restored etcd has those of an earlier time, and people
// change them: without it the scheduler would choose no node that had no room then until its room changes.
func (p *Publisher) readAgain(ctx context.Context) error {
	if p.published != nil && time.Since(p.read) < reviewEvery {
		return nil
	}
	all, err := p.API.Capacities(ctx, p.Node)
	if err != nil {
		return err
	}
	p.published, p.read = map[string]Object{}, time.Now()
	for _, o := range all {
		p.published[o.Name] = o
	}
	return nil
}

// sync sends requests as long as something is due and the budget has some, and returns how long to wait if it has not.
func (p *Publisher) sync(ctx context.Context, wanted []Object) (time.Duration, error) {
	for {
		s, found := next(p.published, wanted)
		now := time.Now()
		if !found || !s.lowers {
			p.high = time.Time{}
		}
		switch {
		case !found:
			p.urgent.Store(false)
			return 0, nil
		case s.lowers && p.high.IsZero():
			p.high = now
		}
		if early := lowerAfter - now.Sub(p.high); s.lowers && early > 0 && !p.urgent.Load() {
			return early, nil
		}
		if wait := p.budget.take(now); wait > 0 {
			return wait, nil
		}
		if err := p.send(ctx, s); err != nil {
			return 0, err
		}
	}
}

func (p *Publisher) send(ctx context.Context, s step) error {
	if s.remove {
		delete(p.published, s.object.Name)
		return p.API.DeleteCapacity(ctx, s.object.Name)
	}
	if _, there := p.published[s.object.Name]; there {
		found, err := p.API.UpdateCapacity(ctx, s.object)
		if err != nil {
			return err
		}
		if found {
			p.published[s.object.Name] = s.object
			return nil
		}
	}
	if err := p.API.CreateCapacity(ctx, s.object); err != nil {
		return err
	}
	p.published[s.object.Name] = s.object
	return nil
}

// review looks at the driver now and then, at a moment that differs from node to node. When this node has published for the
// first time, or the classes are others, a review has to come after that: by this daemon, or by another one.
func (p *Publisher) review(ctx context.Context) (time.Duration, error) {
	if classes := slices.Sorted(slices.Values(p.Classes())); p.due.IsZero() || !slices.Equal(classes, p.classes) {
		p.classes, p.due = classes, time.Now()
	}
	if wait := reviewEvery + p.later - time.Since(p.reviewed); wait > 0 && p.reviewed.After(p.due) {
		return wait, nil
	}
	if wait := reviewGap - time.Since(p.tried); wait > 0 {
		return wait, nil
	}
	p.tried = time.Now()
	driver, err := p.driver(ctx)
	switch {
	case err != nil:
		return 0, err
	case driver == nil:
		p.published = nil // it was taken away
		return reviewEvery, nil
	}
	if fresh := reviewEvery - time.Since(driver.Reviewed); driver.Enabled && fresh > 0 && driver.Reviewed.After(p.due) {
		p.reviewed, p.later = driver.Reviewed, jitter()
		return fresh, nil
	}
	done, err := Review(ctx, ReviewOptions{Provisioner: p.Provisioner, Classes: p.classes, API: p.API}, *driver, time.Now())
	if err != nil {
		return 0, err
	}
	if !done {
		return reviewGap, nil
	}
	p.reviewed, p.later = time.Now(), jitter()
	_, err = p.driver(ctx)
	return reviewEvery, err
}

// jitter keeps the daemons of a cluster from reading the driver at the same moment.
func jitter() time.Duration { return rand.N(reviewEvery / 4) }

// Withdraw removes this node's objects. Where the node stays, stays is true: then it can be chosen as before. The last
// node that publishes has the scheduler compare nothing any more, before its objects go.
func (p *Publisher) Withdraw(ctx context.Context, stays bool) error {
	own, err := p.API.Capacities(ctx, p.Node)
	if err != nil || len(own) == 0 && !p.leaving {
		return err
	}
	p.leaving = true
	if err := p.leave(ctx, stays); err != nil {
		return err
	}
	for _, object := range own {
		if err := p.API.DeleteCapacity(ctx, object.Name); err != nil {
			return err
		}
	}
	if err := p.endComparison(ctx, stays); err != nil {
		return err
	}
	p.leaving = false
	p.Log.Info("withdrew what was published of this node's capacity")
	return nil
}

// endComparison has the scheduler compare nothing if no node publishes any more. Of several nodes that left at once each
// found the others' objects in its review. A crash before it leaves the comparison on until a node publishes.
func (p *Publisher) endComparison(ctx context.Context, stays bool) error {
	driver, err := p.API.Driver(ctx)
	if err != nil || driver == nil || !driver.Ours || !driver.Enabled {
		return err
	}
	all, err := p.API.Capacities(ctx, "")
	if err != nil || slices.ContainsFunc(all, func(o Object) bool { return o.Node != "" }) {
		return err
	}
	return p.leave(ctx, stays)
}

// leave reviews as if this node published nothing. Another daemon's review may be going on: then it is tried again.
func (p *Publisher) leave(ctx context.Context, stays bool) error {
	for range wonTries {
		driver, err := p.API.Driver(ctx)
		if err != nil || driver == nil || !driver.Ours {
			return err
		}
		o := ReviewOptions{Provisioner: p.Provisioner, API: p.API, Leaving: p.Node, Stays: stays}
		if done, err := Review(ctx, o, *driver, time.Now()); done || err != nil {
			return err
		}
	}
	return errors.New("the CSIDriver changes all the time")
}
