package everynode

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// Detach takes this node's directory of a released volume away, as plan.ForVolume decided, and
// then, when this node's turn has come, removes the object.
//
//	directory away      a crash leaves the object: the first node to look goes on, this one with the next start
//	tombstone written   the object with its finalizer: the same
//	finalizer off       an object without it: the same, or it is gone because a user had deleted it
//	object deleted      directories on the nodes that were off, or slower: their tombstone is there
func (d *Directory) Detach(ctx context.Context, h disk.Handle, pv *corev1.PersistentVolume, v plan.Verdict) (time.Duration, error) {
	uid := string(pv.UID)
	if d.detached.Begin(uid) {
		if rec, err := h.Lookup(pv.Name); err == nil && rec != nil {
			d.detached.Note(uid, rec.ClaimUID) // the record may be gone when it is this node's turn
		}
		if err := takeAway(h, pv.Name, "", v.Action); err != nil {
			d.detached.End(uid)
			return 0, d.DiskFailed(pv, err)
		}
		d.Metrics.Volume(d.Pool, v.Reason)
		d.Log.Info(outcome[v.Action], "reason", v.Reason, "volume", pv.Name, "pool", d.Pool)
		d.Purge(pv.Name)
	}
	if wait := d.removalDelay(ctx, pv); wait > 0 {
		return wait, nil
	}
	if _, watched := d.Watched(pv.Name); !watched {
		return 0, nil // another node removed it meanwhile
	}
	first, err := d.API.WriteTombstone(ctx, plan.NewTombstone(pv, d.detached.Noted(uid), d.Node,
		v.Action))
	if err != nil {
		return 0, err
	}
	// Another node is at it: this one helps if that died in between.
	if !first && d.detached.Since(uid) < d.stagger(ctx, pv)+plan.HelpAfter {
		return plan.HelpAfter, nil
	}
	if v.Action == plan.Retain {
		_, err := d.API.ReleaseFinalizer(ctx, pv)
		return 0, err
	}
	return 0, d.API.RemoveVolume(ctx, pv)
}

// ApplyTombstone takes the directory away of a volume that was removed without this node, as
// plan.ForRecord decided by its tombstone. A crash in between leaves the record, with which the
// next start comes here again.
func (d *Directory) ApplyTombstone(h disk.Handle, rec record.Record, v plan.Verdict) error {
	if err := takeAway(h, rec.PV, rec.ClaimUID, v.Action); err != nil {
		return err
	}
	d.Metrics.Volume(d.Pool, v.Reason)
	d.Log.Info(outcome[v.Action], "reason", v.Reason, "volume", rec.PV,
		"directory", rec.Directory, "claim", rec.Namespace+"/"+rec.Claim, "pool", d.Pool)
	d.Purge(rec.PV)
	return nil
}

// Memory returns the UIDs of the objects whose directory this process took away and which it still
// knows, with whether that is so long ago that it helps another node which began to remove the
// object.
func (d *Directory) Memory() map[string]bool {
	known := map[string]bool{}
	for _, uid := range d.detached.Under("") {
		known[uid] = d.detached.Since(uid) >= plan.HelpAfter
	}
	return known
}

// Remember puts this in the place of what the process knows.
func (d *Directory) Remember(detached map[string]bool) {
	for _, uid := range d.detached.Under("") {
		d.detached.End(uid)
	}
	for uid, long := range detached {
		d.detached.Resume(uid, map[bool]time.Duration{true: plan.HelpAfter}[long])
	}
}

// removalDelay is how long this node still leaves the object to others, once its own directory is
// away.
func (d *Directory) removalDelay(ctx context.Context, pv *corev1.PersistentVolume) time.Duration {
	if !d.detached.Has(string(pv.UID)) {
		return 0
	}
	return max(0, d.stagger(ctx, pv)-d.detached.Since(string(pv.UID)))
}

func (d *Directory) stagger(ctx context.Context, pv *corev1.PersistentVolume) time.Duration {
	return plan.RemovalDelay(string(pv.UID), d.Node, d.Nodes(ctx))
}

// outcome is what the log has of this node's directory.
var outcome = map[plan.Action]string{
	plan.Delete:  "this node's directory of the volume is deleted; its files follow",
	plan.Archive: "this node's directory of the volume is archived",
	plan.Retain:  "this node's directory of the volume is kept",
	plan.PutBack: "this node's directory of the volume was restored, and is retained",
	plan.LetGo:   "this node has no directory of the volume any more",
}

// takeAway does with a volume's directory what was decided, durably. Each step can be repeated.
func takeAway(h disk.Handle, pv, claimUID string, action plan.Action) error {
	switch action {
	case plan.Delete: // the object or the tombstone has the decision, whichever node removes the object
		if err := h.Trash(pv); err != nil {
			return err
		}
		return h.Discard(pv)
	case plan.Archive:
		return h.Archive(pv)
	case plan.PutBack: // it is to be retained
		if err := h.PutBack(pv, claimUID); err != nil {
			return err
		}
		return h.Retain(pv)
	case plan.Retain:
		return h.Retain(pv)
	default:
		return nil
	}
}
