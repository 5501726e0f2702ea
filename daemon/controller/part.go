package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/volume"
)

// A volume of scope every-node has a directory on each node, this node's part of it. Whoever makes the
// object makes his own part first; the others make theirs when they see the object. Each removes his
// own; the one whose turn it is writes the tombstone and lets the object go.

// part looks at a volume of scope every-node. done is false if the object is released or being
// deleted: then it is looked at like any other volume.
func (c *Controller) part(ctx context.Context, r *room, name string) (done bool, after time.Duration, err error) {
	pv, watched := c.World.Volumes.Get(name)
	switch {
	case !watched && r.Scope == plan.ScopeEveryNode:
		return true, 0, c.partAlone(ctx, r, name)
	case !watched || !plan.OnEveryNode(pv):
		return false, 0, nil
	case !plan.InUse(pv):
		wait := c.removalTurn(ctx, pv)
		return wait > 0, wait, nil // what others change in the object meanwhile costs no request
	}
	after, err = c.follow(ctx, r, pv)
	return true, after, err
}

// follow makes this node's part of a volume that is in use, or says why it cannot.
func (c *Controller) follow(ctx context.Context, r *room, pv *corev1.PersistentVolume) (time.Duration, error) {
	if r.Name == "" {
		return 0, nil // this node has no pool of that name, and no part in its volumes
	}
	h, _ := r.disk.Open(ctx)
	facts, err := c.partFacts(h, r, pv)
	if err != nil {
		return 0, c.partTrouble(r, pv, err)
	}
	verdict := plan.ForPart(facts)
	switch {
	case verdict.Action == plan.Provision:
		if err := c.makePart(h, pv, facts); err != nil {
			return 0, c.partTrouble(r, pv, err)
		}
		c.partMade(r, pv)
	case verdict.Action == plan.Note:
		// A crash before it leaves a directory that is said to be unpublished, with its object: here again.
		if err := h.Published(pv.Name); err != nil {
			return 0, err
		}
		c.partThere(r, pv)
	case verdict.Action == plan.PutBack:
		return 0, c.putPartBack(ctx, r, h, pv, verdict)
	case verdict.Action == plan.Ignore && facts.Record != nil:
		c.partThere(r, pv)
	default:
		c.sayPart(r, pv, verdict)
	}
	return verdict.After, nil
}

func (c *Controller) partFacts(h disk.Handle, r *room, pv *corev1.PersistentVolume) (plan.PartFacts, error) {
	state := h.State
	f := plan.PartFacts{Volume: pv, Self: c.Self, Pool: c.poolWithClass(r, pv), Free: state.Report.Free}
	_, f.Full = state.Closed()
	if !state.Removable() {
		f.Closed = f.Full
		return f, nil
	}
	var err error
	f.Record, err = h.Lookup(pv.Name)
	if errors.Is(err, record.ErrDamaged) {
		f.Unreadable, err = err.Error(), nil
	}
	return f, err
}

// poolWithClass is the pool with the settings of the volume's class. A class that is gone, or that
// was changed since, leaves the pool's own: who has the volume already keeps what he has.
func (c *Controller) poolWithClass(r *room, pv *corev1.PersistentVolume) plan.Pool {
	if class, known := c.World.Classes.Get(plan.VolumeClass(pv)); known {
		if pool, refusal := c.Resolve(class, c.planPools()); refusal == nil && pool.Name == r.Name {
			return pool
		}
	}
	return r.Pool
}

// makePart: a crash after it leaves a directory of a volume whose object is there, which is what
// should be; the next start finds it and does nothing.
func (c *Controller) makePart(h disk.Handle, pv *corev1.PersistentVolume, f plan.PartFacts) error {
	rec, err := plan.PartRecord(f)
	if err != nil {
		return err // plan's partBadName answered this before
	}
	rec.Class, rec.Provisioner, rec.Node = plan.VolumeClass(pv), pv.Annotations[plan.ProvisionedBy], c.Node
	rec.Source, rec.Scope, rec.Reclaim = plan.SourceHostPath, plan.ScopeEveryNode, string(pv.Spec.PersistentVolumeReclaimPolicy)
	rec.Requested, _ = plan.Bytes(pv.Spec.Capacity[corev1.ResourceStorage])
	return h.Create(volume.Spec{Record: rec, Mode: f.Pool.Mode, UID: f.Pool.UID, GID: f.Pool.GID})
}

// late is how old an object is for which a directory is news: the node joined, was off, or could not.
const late = time.Minute

func (c *Controller) partMade(r *room, pv *corev1.PersistentVolume) {
	message := fmt.Sprintf("node %s has its directory for this volume now, in pool %s", c.Node, r.Name)
	c.Log.Info(message, "reason", plan.ReasonPartMade, "volume", pv.Name, "pool", r.Name)
	c.Observer.Part(r.Name, plan.ReasonPartMade)
	if c.said.Resolve(partKey(pv)) || time.Since(pv.CreationTimestamp.Time) > late {
		c.Speaker.Event(report.Volume(pv), corev1.EventTypeNormal, plan.ReasonPartMade, message)
	}
}

// partThere says so once, if it was said before that something is wrong.
func (c *Controller) partThere(r *room, pv *corev1.PersistentVolume) {
	if c.said.Resolve(partKey(pv)) {
		message := fmt.Sprintf("node %s has its directory for this volume again, in pool %s", c.Node, r.Name)
		c.Log.Info(message, "reason", plan.ReasonPartMade, "volume", pv.Name, "pool", r.Name)
		c.Speaker.Event(report.Volume(pv), corev1.EventTypeNormal, plan.ReasonPartMade, message)
	}
}

// putPartBack asks the API whether the object really is in use again: what the watch says may be older
// than this node's removal of its part.
func (c *Controller) putPartBack(ctx context.Context, r *room, h disk.Handle, pv *corev1.PersistentVolume, v plan.Verdict) error {
	now, err := c.API.GetVolume(ctx, pv.Name)
	if err != nil || now == nil || now.UID != pv.UID || !plan.InUse(now) {
		return err
	}
	if err := h.PutBack(pv.Name, string(pv.Spec.ClaimRef.UID)); err != nil {
		return c.partTrouble(r, pv, err)
	}
	c.begun.end(removedKey(pv))
	c.said.Resolve(partKey(pv))
	c.Observer.Part(r.Name, v.Reason)
	c.Log.Info(v.Message, "reason", v.Reason, "volume", pv.Name, "pool", r.Name)
	c.Speaker.Event(report.Volume(pv), corev1.EventTypeNormal, v.Reason, v.Message)
	return nil
}

func (c *Controller) partTrouble(r *room, pv *corev1.PersistentVolume, err error) error {
	signal(r.kick) // a pool that moved is looked at before anything is said; its gate then says why
	if !errors.Is(err, volume.ErrMoved) && !errors.Is(err, context.Canceled) {
		c.sayPart(r, pv, plan.Verdict{Action: plan.Wait, Reason: plan.ReasonCreateFailed,
			Message: "node " + c.Node + " has no directory for this volume: " + err.Error()})
	}
	return err
}

// sayPart tells the volume, of which each node may say something.
func (c *Controller) sayPart(r *room, pv *corev1.PersistentVolume, v plan.Verdict) {
	if v.Reason == "" || !c.said.New(partKey(pv), v.Reason+" "+v.Message) {
		return
	}
	c.Observer.Part(r.Name, v.Reason)
	c.Log.Warn(v.Message, "reason", v.Reason, "volume", pv.Name, "pool", r.Name)
	c.Speaker.Event(report.Volume(pv), corev1.EventTypeWarning, v.Reason, v.Message)
}

func partKey(pv *corev1.PersistentVolume) string { return "part/" + string(pv.UID) }

func removedKey(pv *corev1.PersistentVolume) string { return "removed/" + string(pv.UID) }

// removePart takes this node's part away and then, when its turn has come, lets the object go.
//
//	part put away       a crash leaves the object: whoever comes first goes on, this node with the next start
//	tombstone written   the object with its finalizer: the same
//	finalizer off       an object without it: the same, or it is gone because somebody had deleted it
//	object deleted      directories on the nodes that were off, or slower: their tombstone is there
func (c *Controller) removePart(ctx context.Context, r *room, h disk.Handle, pv *corev1.PersistentVolume, v plan.Verdict) (time.Duration, error) {
	key := removedKey(pv)
	if c.begun.begin(key) {
		if err := putAway(h, pv.Name, "", v.Action); err != nil {
			c.begun.end(key)
			return 0, c.diskTrouble(r, pv, err)
		}
		c.Observer.Volume(r.Name, v.Reason)
		c.Log.Info(doneHere[v.Action], "reason", v.Reason, "volume", pv.Name, "pool", r.Name)
		r.purges.Add(item{name: pv.Name})
	}
	if wait := c.removalTurn(ctx, pv); wait > 0 {
		return wait, nil
	}
	if _, watched := c.World.Volumes.Get(pv.Name); !watched {
		return 0, nil // while we asked somebody else let it go
	}
	first, err := c.API.WriteTombstone(ctx, plan.NewTombstone(pv, c.Node, v.Action))
	if err != nil {
		return 0, c.apiTrouble(report.Volume(pv), err)
	}
	// Another node is at it: this one helps if it died in between.
	if !first && c.begun.since(key) < c.turnOf(ctx, pv)+plan.HelpAfter {
		return plan.HelpAfter, nil
	}
	if v.Action == plan.Retain {
		_, err := c.API.ReleaseFinalizer(ctx, pv)
		return 0, err
	}
	return 0, c.API.RemoveVolume(ctx, pv)
}

// removalTurn is how long this node still leaves the object to others, once its own part is away.
func (c *Controller) removalTurn(ctx context.Context, pv *corev1.PersistentVolume) time.Duration {
	begun := c.begun.since(removedKey(pv))
	if begun == 0 {
		return 0
	}
	return max(0, c.turnOf(ctx, pv)-begun)
}

func (c *Controller) turnOf(ctx context.Context, pv *corev1.PersistentVolume) time.Duration {
	return plan.RemovalTurn(string(pv.UID), c.Node, c.nodeCount(ctx, time.Minute))
}

// doneHere says in the log what became of this node's part.
var doneHere = map[plan.Action]string{
	plan.Delete:  "this node's directory of the volume is deleted; its files follow",
	plan.Archive: "this node's directory of the volume is archived",
	plan.Retain:  "this node's directory of the volume is kept",
	plan.PutBack: "this node's directory of the volume was put back, and is kept",
	plan.LetGo:   "this node has no directory of the volume any more",
}

// putAway does with a volume's directory what was decided, durably. Each step can be repeated.
func putAway(h disk.Handle, pv, claimUID string, action plan.Action) error {
	switch action {
	case plan.Delete: // what was decided is told by the object or by the tombstone, whichever node lets that go
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

// partAlone looks at a volume whose object the watch does not have any more, if this node still has
// its directory: it was slower than the others, or its pool was closed.
func (c *Controller) partAlone(ctx context.Context, r *room, pv string) error {
	h, ok := r.disk.Open(ctx)
	if !ok {
		return nil // the records are gone through when it opens
	}
	rec, err := h.Lookup(pv)
	if err != nil && !errors.Is(err, record.ErrDamaged) {
		return err
	}
	switch {
	case rec == nil || c.inFlight.busy(rec.ClaimUID):
		return nil
	case rec.Place == record.Emptying, rec.Place == record.InArchive:
		r.purges.Add(item{name: pv}) // the answer that it is gone was lost
		return nil
	case rec.Place != record.InPool && rec.Place != record.InTrash:
		return nil
	}
	_, err = c.record(ctx, r, h, *rec, c.comparisonOf(*rec, h.State.Report.Mark))
	return err
}

// catchUp puts away the directory of a volume that went without this node: its tombstone says so.
// A crash in between leaves the record, with which the next start comes here again.
func (c *Controller) catchUp(r *room, h disk.Handle, rec record.Record, v plan.Verdict) error {
	if err := putAway(h, rec.PV, rec.ClaimUID, v.Action); err != nil {
		return err
	}
	c.Observer.Volume(r.Name, v.Reason)
	c.Log.Info(doneHere[v.Action], "reason", v.Reason, "volume", rec.PV,
		"directory", rec.Directory, "claim", rec.Namespace+"/"+rec.Claim, "pool", r.Name)
	r.purges.Add(item{name: rec.PV})
	return nil
}
