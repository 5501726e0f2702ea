package storagecapacity

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// reviewEvery is how often the CSIDriver is looked at, and the nodes that publish nothing.
	reviewEvery = 5 * time.Minute
	// nodeGap is the mean time between two nodes' looks where a review is due.
	nodeGap = 150 * time.Millisecond
)

// driver reads the CSIDriver; nil if there is none of ours.
func (p *Publisher) driver(ctx context.Context) (*Driver, error) {
	d, err := p.paid().Driver(ctx)
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

// addReview adds a review that is due, after each object was published, and returns how long it has
// time. When this node has published a class for the first time, a review has to come after that:
// by this daemon, or by another one.
func (p *Publisher) addReview(due *steps, wanted []Object, now time.Time) time.Duration {
	if slices.ContainsFunc(wanted, func(o Object) bool { _, there := p.published[o.Name]; return !there }) {
		return reviewEvery
	}
	if p.next.IsZero() || p.due.After(p.scheduled) {
		p.schedule(now)
	}
	early := p.next.Sub(now)
	if early <= 0 {
		due[review] = &Object{}
	}
	return early
}

// look reads the driver, and reviews unless another daemon has done so.
func (p *Publisher) look(ctx context.Context) error {
	driver, err := p.driver(ctx)
	switch {
	case err != nil:
		return err
	case driver == nil:
		p.published = nil // it was taken away
		return nil
	}
	mine := false
	if p.seen = *driver; !p.fresh(time.Now()) {
		mine, err = p.reviewNow(ctx, *driver)
	}
	p.schedule(time.Now())
	if p.Reviewed != nil {
		p.Reviewed(ctx, mine)
	}
	return err
}

// reviewNow reviews unless another daemon is first. What fails counts for nothing.
func (p *Publisher) reviewNow(ctx context.Context, d Driver) (done bool, err error) {
	p.seen.Reviewed = time.Now()
	done, err = p.review(ctx, d, terms{classes: p.classNames()})
	if err == nil && done {
		var now *Driver
		if now, err = p.driver(ctx); now != nil {
			p.seen = *now
		}
	}
	if err != nil {
		p.due = time.Now()
	}
	return done && err == nil, err
}

// classNames are the classes in the order in which they are compared, without those that are
// refused.
func (p *Publisher) classNames() []string {
	names := slices.DeleteFunc(p.Classes(), func(class string) bool {
		return p.RefusedFor(class) != ""
	})
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// fresh reports whether the last review that is known counts for what is published now. A clock
// that is wrong by more has each look find none.
func (p *Publisher) fresh(now time.Time) bool {
	return now.Sub(p.seen.Reviewed).Abs() < reviewEvery && p.seen.Reviewed.After(p.due) && (p.seen.Enabled || len(p.published) == 0)
}

// schedule sets when the driver is read next: where a review is due, the more nodes publish the
// wider apart they look, so that most of them find it done.
func (p *Publisher) schedule(now time.Time) {
	p.scheduled = now
	age := now.Sub(p.seen.Reviewed).Abs()
	if p.fresh(now) {
		p.next = now.Add(reviewEvery - age + jitter())
		return
	}
	p.next = now.Add(max(0, reviewGap-age) + rand.N(min(reviewGap, nodeGap*time.Duration(max(1, p.seen.Publishing)))))
}

// jitter keeps the daemons of a cluster from reading the same at the same moment.
func jitter() time.Duration { return rand.N(reviewEvery / 4) }
