package controller

import (
	"context"
	"errors"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
)

// recheckEvery is how often a pool's records are compared with the API without a reason.
const recheckEvery = 10 * time.Minute

// keepRecords goes through a pool's records whenever the pool opens, a claim went away with work half
// done, or time has passed.
func (c *Controller) keepRecords(ctx context.Context, r *room) {
	for {
		if err := c.recheck(ctx, r); err != nil && ctx.Err() == nil {
			c.Log.Warn(err.Error(), "pool", r.Name, "doing", "comparing records with the API")
			if errors.Is(err, ErrMoved) {
				signal(r.kick)
			}
		}
		timer := time.NewTimer(recheckEvery)
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
	if !state.Removable() {
		return nil
	}
	if _, err := r.Disk.Sweep(ctx, state.Identity()); err != nil {
		return err
	}
	records, err := r.Disk.Records(ctx, state.Identity())
	if err != nil {
		return err
	}
	for _, record := range records {
		if _, published := c.World.Volumes.Get(record.PV); published {
			continue // the usual case costs no request
		}
		if c.ledger.busy(record.ClaimUID) {
			continue // a worker has it
		}
		if err := c.record(ctx, r, record); err != nil {
			return err
		}
	}
	return nil
}

// record looks at one record whose volume object is not watched: it does not exist, or its label was
// taken off. Both objects are read from the API before anything is undone.
func (c *Controller) record(ctx context.Context, r *room, record plan.Record) error {
	facts := plan.RecordFacts{Record: record, Provisioner: c.Provisioner, Aliases: c.Aliases, Node: c.Node}
	var err error
	if facts.Volume, err = c.API.GetVolume(ctx, record.PV); err != nil {
		return err
	}
	if facts.Claim, err = c.API.GetClaim(ctx, record.Namespace, record.Claim); err != nil {
		return err
	}
	switch verdict := plan.ForRecord(facts); verdict.Action {
	case plan.Finish:
		r.purges.Add(item{name: record.PV})
	case plan.Undo:
		return c.undo(ctx, r, record)
	}
	return nil
}

// undo removes a volume that was never published. One that has data in it was: it is left alone.
func (c *Controller) undo(ctx context.Context, r *room, record plan.Record) error {
	err := r.Disk.Undo(ctx, c.Gate.State(r.Name).Identity(), record.PV)
	switch {
	case err == nil:
		c.Observer.Volume(r.Name, plan.ReasonUnpublishedRemoved)
		c.Log.Info("removed a volume that was made and never published", "reason", plan.ReasonUnpublishedRemoved, "volume", record.PV, "pool", r.Name)
	case errors.Is(err, ErrNotEmpty):
		if c.ledger.news("orphan/"+record.PV, plan.ReasonOrphaned) {
			c.Observer.Volume(r.Name, plan.ReasonOrphaned)
			c.Log.Warn("a recorded volume has data and no volume object; it is kept", "reason", plan.ReasonOrphaned,
				"volume", record.PV, "directory", record.Directory, "claim", record.Namespace+"/"+record.Claim, "pool", r.Name)
		}
		return nil
	}
	return err
}
