package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

const (
	// recheckEvery is how often a pool's records are compared with the API without a reason.
	recheckEvery = 10 * time.Minute
	// recheckAgain is how soon after a comparison that could not be finished.
	recheckAgain = 30 * time.Second
)

// keepRecords goes through a pool's records whenever the pool opens, a claim went away with work
// half done, or time has passed.
func (c *volumes) keepRecords(ctx context.Context, w *poolWorker) {
	for {
		next := recheckEvery
		select { // what was signalled before is seen now
		case <-w.recheck:
		default:
		}
		err := c.recheck(ctx, w)
		c.NodeRequest("the comparison of the records in pool "+w.Name, err)
		switch {
		case err == nil:
			c.said.Forget("records/" + w.Name)
		case ctx.Err() == nil:
			next = recheckAgain
			if !report.OfRequest(err) {
				c.warnOnce("records", w.Name, err, "comparing records with the API")
			}
			if errors.Is(err, volume.ErrDirectoryReplaced) {
				wake.Signal(w.kick)
			}
		}
		if !wake.Wait(ctx, next, w.recheck) {
			return
		}
	}
}

func (c *volumes) recheck(ctx context.Context, w *poolWorker) error {
	if !w.elector.Leads() {
		w.tally.stop()
		return nil
	}
	h, ok := w.disk.Open(ctx)
	if !ok {
		return nil
	}
	mark := h.State.Report.Mark
	if err := w.elector.Fence(ctx); err != nil {
		return ignoreNotLeading(err)
	}
	if err := h.Sweep(); err != nil {
		return err
	}
	inventory, err := h.Inventory()
	if err != nil {
		return err
	}
	w.tally.count(inventory)
	c.pools.expectDirectories(w, inventory.Volumes)
	records := inventory.Volumes
	if w.owner.Count(records, mark) {
		return nil // the gate closes
	}
	all := records
	if records = withoutInline(records); len(records) < len(all) {
		wake.Signal(w.sweep)
	}
	c.lookForLost(w, records)
	c.tellAstray(w, records)
	c.claims.mendSizes(ctx, w, h, records)
	records = slices.DeleteFunc(slices.Clone(records), func(rec record.Record) bool {
		pv, published := c.Listers.Volumes.Get(rec.PV)
		if published && c.beside(w, pv) {
			return false // it was begun here, and made in another pool
		}
		if published && plan.MayBeLeft(rec) && plan.Leaving(pv) {
			return false // nothing tells this process when it is gone, if another one let it go
		}
		return published && !c.begun.Has(letGoKey(rec.PV)) // the watch may not have brought yet that it went
	})
	if len(records) == 0 && c.identity.ConfirmedLately() {
		w.tally.compared()
		return nil // the usual case costs no request
	}
	if err := c.identity.Confirm(ctx); err != nil {
		return err
	}
	if c.identity.Contradicts(mark) {
		wake.Signal(w.kick) // the API server is another cluster's since the pool was looked at
		return nil
	}
	err = c.compare(ctx, w, h, records, &comparison{c: c, sure: c.identity.Owns(all, mark)})
	if err == nil {
		w.tally.compared()
	}
	return err
}

// compare looks at each of these records, also if one of them fails, and returns the first error.
func (c *volumes) compare(ctx context.Context, w *poolWorker, h disk.Handle, records []record.Record, with *comparison) error {
	var first error
	var again time.Duration
	failed := 0
	for _, rec := range records {
		if wait := c.claims.awaited(rec.ClaimUID); wait > 0 {
			again = max(again, wait)
			continue // its object was made just now, and may have gone since
		}
		if c.claims.busy(rec.ClaimUID) {
			continue // a worker has it
		}
		goOn, err := c.record(ctx, w, h, rec, with)
		if err != nil {
			first, failed = cmp.Or(first, err), failed+1
		}
		if !goOn {
			break
		}
	}
	if again > 0 {
		time.AfterFunc(again, func() { wake.Signal(w.recheck) })
	}
	if failed > 1 {
		return fmt.Errorf("%w (and %d more)", first, failed-1)
	}
	return first
}

// lookForLost has the volumes looked at that are bound and have no directory in the pool: the API
// server was restored to a day before they were deleted, or a user removed their directories. The
// records were read before the volumes are, so one that was made meanwhile may be looked at for
// nothing.
func (c *volumes) lookForLost(w *poolWorker, records []record.Record) {
	places := make(map[string]record.Place, len(records))
	for _, rec := range records {
		places[rec.PV] = rec.Place
	}
	suspects := map[string]bool{}
	for _, v := range c.volumesIn(w.Name) {
		if plan.MayLack(v, places[v.Name]) {
			suspects[v.Name] = true
			w.volumes.Add(item{name: v.Name})
		}
	}
	w.tally.only(suspects)
}

// tellAstray tells the volumes of a pool to which no pod comes, because the node's labels are other
// ones than when they were made, and those whose pods look in another directory. What a record says
// wrongly of the finalizer is mended.
func (c *volumes) tellAstray(w *poolWorker, records []record.Record) {
	if node, known := c.Listers.Nodes.Get(c.Node); known {
		for _, v := range c.volumesIn(w.Name) {
			if verdict, is := c.OffItsNode(v, node.Labels); is {
				c.reportVolume(w, v, verdict)
			}
		}
	}
	for _, rec := range records {
		v, watched := c.Listers.Volumes.Get(rec.PV)
		if !watched || v.Labels[plan.PoolLabel] != w.Name {
			continue
		}
		if verdict, is := c.OffItsPath(v, w.Pool, rec); is {
			c.reportVolume(w, v, verdict)
		}
		if plan.NotedLate(v, rec) {
			w.volumes.Add(item{name: rec.PV})
		}
	}
}

// comparison is what the records of one pass have in common.
type comparison struct {
	c         *volumes
	sure      bool            // this is the cluster of the pool's volumes
	claimants *plan.Claimants // nil: not read yet
}

// comparisonOf is that of one record alone.
func (c *volumes) comparisonOf(rec record.Record, marker hostcheck.Marker) *comparison {
	return &comparison{c: c, sure: c.identity.Owns([]record.Record{rec}, marker)}
}

// objectOf finds an object of another name for the record's claim. All objects of the cluster are
// read, once for all records, and only before something is undone or purged.
func (with *comparison) objectOf(ctx context.Context, rec record.Record) (string, error) {
	if with.claimants == nil {
		all := &plan.Claimants{}
		if err := with.c.API.EachVolume(ctx, all.Add); err != nil {
			return "", err
		}
		with.claimants = all
	}
	return with.claimants.Of(rec), nil
}

// record looks at one record whose volume object is not watched: it does not exist, or its label is
// not this node's. Everything is read from the API before anything is undone. goOn is false for an
// error that the next record would meet as well: the API's, or of a pool that moved.
func (c *volumes) record(ctx context.Context, w *poolWorker, h disk.Handle, rec record.Record, with *comparison) (goOn bool, err error) {
	facts, err := c.recordFacts(ctx, w, h, rec)
	if err != nil {
		return false, err
	}
	facts.Unsure = !with.sure
	verdict := plan.ForRecord(facts)
	if rec.Kind == record.Volume && (verdict.Action == plan.Undo || verdict.Action == plan.Finish) {
		if facts.Object, err = with.objectOf(ctx, rec); err != nil {
			return false, err
		}
		verdict = plan.ForRecord(facts)
	}
	switch verdict.Action {
	case plan.Finish:
		if rec.Place == record.InTrash {
			return true, c.discard(ctx, w, rec.PV)
		}
		w.purges.Add(item{name: rec.PV})
	case plan.Undo:
		err = c.undo(ctx, w, h, rec)
	case plan.Keep:
		if rec.Sent != "" && facts.Volume == nil { // it is about to be made elsewhere
			time.AfterFunc(recheckAgain, func() { wake.Signal(w.recheck) })
		}
		switch verdict.Reason {
		case "":
		case plan.ReasonLabelsMissing:
			w.tally.judge(rec.PV, stateUnwatched)
			c.reportVolume(w, facts.Volume, verdict)
		default:
			err = c.orphan(ctx, w, h, rec)
		}
		if plan.Inherits(facts.Volume, w.Scope, rec.Place) {
			w.volumes.Add(item{name: rec.PV})
		}
	case plan.PutBack, plan.Delete, plan.Archive, plan.Retain:
		err = c.keep(ctx, w, h, rec, verdict)
	}
	return !errors.Is(err, volume.ErrDirectoryReplaced) && ctx.Err() == nil, err
}

func (c *volumes) recordFacts(ctx context.Context, w *poolWorker, h disk.Handle, rec record.Record) (f plan.RecordFacts, err error) {
	f = plan.RecordFacts{
		Record: rec, Self: c.Self, Scope: w.Scope,
		Former: h.State.Report.Mark.Former(), NodeLabels: c.nodeLabels(),
	}
	if rec.Kind == record.Snapshot {
		f.Content, f.ContentUnknown = c.copies.contentOf(rec.PV)
		return f, nil
	}
	if f.Volume, err = c.API.GetVolume(ctx, rec.PV); err != nil {
		return f, err
	}
	f.Beside = f.Volume != nil && c.beside(w, f.Volume)
	if f.Claim, err = c.API.GetClaim(ctx, rec.Namespace, rec.Claim); err != nil {
		return f, err
	}
	if plan.Buryable(f) {
		f.Tombstone, err = c.API.ReadTombstone(ctx, rec.PV)
	}
	return f, err
}

// keep takes a volume out of the trash whose object no daemon watches, and is kept; or notes that
// an object is gone which people may delete at any time. Of scope every-node a tombstone says what
// becomes of the volume.
func (c *volumes) keep(ctx context.Context, w *poolWorker, h disk.Handle, rec record.Record, v plan.Verdict) error {
	back := v.Action == plan.PutBack
	unheld := (rec.Unheld || rec.Sent != "") && v.Action == plan.Retain
	if !unheld && !(back && rec.Scope != plan.ScopeEveryNode) {
		return w.everyNode.ApplyTombstone(h, rec, v)
	}
	if err := w.elector.Fence(ctx); err != nil {
		return ignoreNotLeading(err)
	}
	reason, what, err := plan.ReasonRetained, removed[plan.Retain], error(nil)
	if back {
		reason, err = v.Reason, h.PutBack(rec.PV, rec.ClaimUID)
		what = "the volume was being removed, and its object is kept and is not this daemon's any " +
			"more; its directory was restored"
	} else {
		err = h.Retain(rec.PV)
	}
	if err != nil {
		return err
	}
	if back {
		c.begun.End(letGoKey(rec.PV))
	}
	c.Metrics.Volume(w.Name, reason)
	c.Log.Info(what, "reason", reason, "volume", rec.PV, "claim", rec.Namespace+"/"+rec.Claim, "pool", w.Name)
	return nil
}

// undo removes a volume that was never published. One that has data in it was: it is left alone.
func (c *volumes) undo(ctx context.Context, w *poolWorker, h disk.Handle, rec record.Record) error {
	if err := w.elector.Fence(ctx); err != nil {
		return ignoreNotLeading(err)
	}
	err := h.Undo(rec.PV)
	if err == nil {
		w.tally.place(rec.PV, "")
	}
	if err == nil && rec.Origin.Name != "" {
		w.purges.Add(item{name: rec.PV}) // a copy has data, which went to the trash
	}
	switch {
	case err == nil && rec.Place == record.Nowhere:
		// Never made, or purged by a process that ended before it forgot it: the disk does not
		// tell.
		c.Log.Info("forgot a volume whose directory is gone", "volume", rec.PV, "pool", w.Name)
	case err == nil:
		c.Metrics.Volume(w.Name, plan.ReasonUnpublishedRemoved)
		c.Log.Info("removed a volume that was made and never published", "reason", plan.ReasonUnpublishedRemoved, "volume", rec.PV, "pool", w.Name)
	case errors.Is(err, volume.ErrNotEmpty):
		c.reportOrphan(w, rec)
		return nil
	}
	return err
}

// orphan tells of a volume that is kept without an object. What is whole in the trash may be just
// about to be discarded by a worker that let the object go, since the records were read.
func (c *volumes) orphan(ctx context.Context, w *poolWorker, h disk.Handle, rec record.Record) error {
	if rec.Kind == record.Volume && rec.Place == record.InTrash {
		if c.begun.Has(removingKey(rec.PV)) {
			return nil
		}
		now, err := h.Lookup(rec.PV)
		if err != nil || now == nil || now.Place != record.InTrash {
			return err
		}
		if c.begun.Has(letGoKey(rec.PV)) { // the pool went away between the two, and is back
			return c.discard(ctx, w, rec.PV)
		}
	}
	if rec.Kind == record.Snapshot && c.copies.letsContentGo(rec.PV) {
		return nil // its content's worker is about to have it go
	}
	c.reportOrphan(w, rec)
	return nil
}

func (c *volumes) reportOrphan(w *poolWorker, rec record.Record) {
	w.tally.judge(rec.PV, stateOrphaned)
	if !c.said.New("orphan/"+rec.PV, plan.ReasonOrphaned) {
		return
	}
	words := "a recorded volume has data and no volume object; it is kept"
	if rec.Scope == plan.ScopeEveryNode { // empty or not
		words = "a recorded volume has no volume object, and nothing proves that its claim is gone; it is kept"
	}
	if rec.Replaced != "" {
		words = "a volume of a CSI driver that was being adopted has no volume object; it is kept, and adopt --from-csi or --undo makes one"
	}
	if rec.Kind == record.Snapshot {
		words = "a recorded snapshot has no VolumeSnapshotContent; it is kept"
	}
	if rec.Kind == record.Snapshot && rec.Place == record.InTrash {
		words = "a recorded snapshot is whole in the trash and has no VolumeSnapshotContent, which this daemon did not remove; it is kept"
	}
	if rec.Kind == record.Volume && rec.Place == record.InTrash {
		words = "a recorded volume is whole in the trash and has no volume object, which this daemon did not remove; it is kept"
	}
	c.Metrics.Volume(w.Name, plan.ReasonOrphaned)
	c.Log.Warn(words, "reason", plan.ReasonOrphaned,
		"volume", rec.PV, "directory", rec.Directory, "claim", rec.Namespace+"/"+rec.Claim, "pool", w.Name)
}
