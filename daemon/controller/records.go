package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
)

const (
	// recheckEvery is how often a pool's records are compared with the API without a reason.
	recheckEvery = 10 * time.Minute
	// recheckAgain is how soon after a comparison that could not be finished.
	recheckAgain = 30 * time.Second
)

// keepRecords goes through a pool's records whenever the pool opens, a claim went away with work half
// done, or time has passed.
func (c *Controller) keepRecords(ctx context.Context, r *room) {
	for said := ""; ; {
		next, words := recheckEvery, ""
		select { // what was signalled before is seen now
		case <-r.recheck:
		default:
		}
		if err := c.recheck(ctx, r); err != nil && ctx.Err() == nil {
			next, words = recheckAgain, err.Error()
			if same(words) != said {
				c.Log.Warn(words, "pool", r.Name, "doing", "comparing records with the API")
			}
			if errors.Is(err, ErrMoved) {
				signal(r.kick)
			}
		}
		said = same(words)
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-r.recheck:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

func (c *Controller) recheck(ctx context.Context, r *room) error {
	state := c.Gate.State(r.Name)
	if !state.Removable() || !r.leads() {
		return nil
	}
	if err := c.fence(ctx, r); err != nil {
		return quiet(err)
	}
	if _, err := r.Disk.Sweep(ctx, state.Identity()); err != nil {
		return err
	}
	records, err := r.Disk.Records(ctx, state.Identity())
	if err != nil {
		return err
	}
	c.lookForLost(r, records)
	var first error
	var again time.Duration
	failed := 0
	for _, record := range records {
		if _, published := c.World.Volumes.Get(record.PV); published {
			continue // the usual case costs no request
		}
		if wait := c.ledger.awaited(record.ClaimUID); wait > 0 {
			again = max(again, wait)
			continue // its object was made just now, and may have gone since
		}
		if c.ledger.busy(record.ClaimUID) {
			continue // a worker has it
		}
		goOn, err := c.record(ctx, r, record)
		if err != nil {
			first, failed = cmp.Or(first, err), failed+1
		}
		if !goOn {
			break
		}
	}
	if again > 0 {
		time.AfterFunc(again, func() { signal(r.recheck) })
	}
	if failed > 1 {
		return fmt.Errorf("%w (and %d more)", first, failed-1)
	}
	return first
}

// lookForLost has the volumes looked at that are bound and have no directory in the pool: the API server
// was restored to a day before they were deleted, or somebody removed their directories. The records
// were read before the volumes are, so one that was made meanwhile may be looked at for nothing.
func (c *Controller) lookForLost(r *room, records []plan.Record) {
	places := make(map[string]plan.Place, len(records))
	for _, record := range records {
		places[record.PV] = record.Place
	}
	for _, v := range c.World.Volumes.List() {
		if v.Labels[plan.PoolLabel] == r.Name && plan.MayLack(v, places[v.Name]) {
			r.volumes.Add(item{name: v.Name})
		}
	}
}

// record looks at one record whose volume object is not watched: it does not exist, or its label was
// taken off. Both objects are read from the API before anything is undone. goOn is false for an error
// that the next record would meet as well: the API's, or of a pool that moved.
func (c *Controller) record(ctx context.Context, r *room, record plan.Record) (goOn bool, err error) {
	facts := plan.RecordFacts{Record: record, Provisioner: c.Provisioner, Aliases: c.Aliases, Node: c.Node, Scope: r.Scope}
	if facts.Volume, err = c.API.GetVolume(ctx, record.PV); err != nil {
		return false, err
	}
	if facts.Claim, err = c.API.GetClaim(ctx, record.Namespace, record.Claim); err != nil {
		return false, err
	}
	if plan.Buryable(facts) {
		if facts.Tombstone, err = c.API.ReadTombstone(ctx, record.PV); err != nil {
			return false, err
		}
	}
	switch verdict := plan.ForRecord(facts); verdict.Action {
	case plan.Finish:
		r.purges.Add(item{name: record.PV})
	case plan.Undo:
		err = c.undo(ctx, r, record)
	case plan.Keep:
		if verdict.Reason != "" {
			err = c.orphan(ctx, r, record)
		}
	case plan.Delete, plan.Archive, plan.Retain, plan.PutBack:
		err = c.catchUp(ctx, r, record, verdict)
	}
	return !errors.Is(err, ErrMoved) && ctx.Err() == nil, err
}

// quiet: a daemon that does not work in the pool any more leaves everything as it is, and has no
// trouble with that.
func quiet(err error) error {
	if errors.Is(err, ErrNotLeading) {
		return nil
	}
	return err
}

// undo removes a volume that was never published. One that has data in it was: it is left alone.
func (c *Controller) undo(ctx context.Context, r *room, record plan.Record) error {
	if err := c.fence(ctx, r); err != nil {
		return quiet(err)
	}
	err := r.Disk.Undo(ctx, c.Gate.State(r.Name).Identity(), record.PV)
	switch {
	case err == nil && record.Place == plan.Nowhere:
		// Never made, or purged by a process that ended before it forgot it: nobody can tell.
		c.Log.Info("forgot a volume whose directory is gone", "volume", record.PV, "pool", r.Name)
	case err == nil:
		c.Observer.Volume(r.Name, plan.ReasonUnpublishedRemoved)
		c.Log.Info("removed a volume that was made and never published", "reason", plan.ReasonUnpublishedRemoved, "volume", record.PV, "pool", r.Name)
	case errors.Is(err, ErrNotEmpty):
		c.sayOrphan(r, record)
		return nil
	}
	return err
}

// orphan tells of a volume that is kept without an object. What is whole in the trash may be just about to be
// discarded by a worker that let the object go, since the records were read.
func (c *Controller) orphan(ctx context.Context, r *room, record plan.Record) error {
	if record.Place == plan.InTrash {
		if c.ledger.has(removingKey(record.PV)) || c.ledger.has(letGoKey(record.PV)) {
			return nil
		}
		now, err := r.Disk.Lookup(ctx, c.Gate.State(r.Name).Identity(), record.PV)
		if err != nil || now == nil || now.Place != plan.InTrash {
			return err
		}
	}
	c.sayOrphan(r, record)
	return nil
}

func (c *Controller) sayOrphan(r *room, record plan.Record) {
	if !c.ledger.news("orphan/"+record.PV, plan.ReasonOrphaned) {
		return
	}
	words := "a recorded volume has data and no volume object; it is kept"
	if record.Scope == plan.ScopeEveryNode { // empty or not
		words = "a recorded volume has no volume object, and nothing proves that its claim is gone; it is kept"
	}
	if record.Place == plan.InTrash {
		words = "a recorded volume is whole in the trash and has no volume object, which this daemon did not remove; it is kept"
	}
	c.Observer.Volume(r.Name, plan.ReasonOrphaned)
	c.Log.Warn(words, "reason", plan.ReasonOrphaned,
		"volume", record.PV, "directory", record.Directory, "claim", record.Namespace+"/"+record.Claim, "pool", r.Name)
}
