package storagecapacity

import (
	"context"
	"errors"
	"slices"
	"time"
)

// standBy is what a daemon does that publishes nothing: it withdraws what it published before, and
// reviews where no other daemon has for twice as long as they may take. The last node that
// publishes may be deleted from the cluster, and its objects go with it.
func (p *Publisher) standBy(ctx context.Context, d Driver) (time.Duration, error) {
	if err := p.Withdraw(ctx, true); err != nil {
		return 0, err
	}
	later := reviewEvery + jitter()
	if !d.Enabled || time.Since(d.Reviewed).Abs() < 2*reviewEvery {
		return later, nil
	}
	_, err := p.review(ctx, d, terms{classes: p.classNames()})
	return later, err
}

// Withdraw removes this node's objects. Where the node stays, stays is true: then it can be chosen
// as before. The last node that publishes has the scheduler compare nothing any more, before its
// objects go.
func (p *Publisher) Withdraw(ctx context.Context, stays bool) error {
	own, err := p.paid().Capacities(ctx, p.Node)
	if err != nil || len(own) == 0 && !p.leaving {
		return err
	}
	p.leaving = true
	if err := p.leave(ctx, stays); err != nil {
		return err
	}
	for _, object := range own {
		if err := p.paid().DeleteCapacity(ctx, object.Name); err != nil {
			return err
		}
	}
	if err := p.endComparison(ctx, stays); err != nil {
		return err
	}
	p.leaving = false
	p.Log.Info("deleted this node's CSIStorageCapacity objects")
	return nil
}

// endComparison has the scheduler compare nothing if no node publishes any more. Of several nodes
// that left at once each found the others' objects in its review. A crash before it leaves the
// comparison on until a node publishes.
func (p *Publisher) endComparison(ctx context.Context, stays bool) error {
	driver, err := p.paid().Driver(ctx)
	if err != nil || driver == nil || !driver.Ours || !driver.Enabled {
		return err
	}
	all, err := p.paid().Capacities(ctx, "")
	if err != nil || slices.ContainsFunc(all, func(o Object) bool { return o.Node != "" }) {
		return err
	}
	return p.leave(ctx, stays)
}

// leave reviews as if this node published nothing. Another daemon's review may be going on: then it
// is tried again.
func (p *Publisher) leave(ctx context.Context, stays bool) error {
	for range wonTries {
		driver, err := p.paid().Driver(ctx)
		if err != nil || driver == nil || !driver.Ours {
			return err
		}
		done, err := p.review(ctx, *driver, terms{leaves: true, stays: stays})
		if done || err != nil {
			return err
		}
	}
	return errors.New("the CSIDriver changes all the time")
}
