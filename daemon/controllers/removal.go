package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

// removed is what the log has of a volume that was removed.
var removed = map[plan.Action]string{
	plan.Delete:  "the volume is deleted; its files follow",
	plan.Archive: "the volume is archived",
	plan.Retain:  "the volume's object was released, its data is retained",
	plan.LetGo:   "the volume's directory was gone already; its object is deleted",
	plan.Undo:    "the volume is deleted: its claim was bound to another one before",
}

// remove takes the data out of the way, durably, before the object goes: a crash in between leaves
// the object, and the next try finds the directory moved and goes on.
func (c *volumes) remove(ctx context.Context, w *poolWorker, h disk.Handle, pv *corev1.PersistentVolume, action plan.Action) error {
	if err := w.elector.Fence(ctx); err != nil {
		return err
	}
	var err error
	switch action {
	case plan.Delete:
		err = h.Trash(pv.Name)
	case plan.Undo: // a crash after this leaves an object without a record, which is let go
		err = h.Undo(pv.Name)
	case plan.Archive:
		err = h.Archive(pv.Name)
	case plan.Retain, plan.Unhold:
		// The record says that the object is not held for longer than it is not: what is kept by
		// mistake harms nobody. Without a pool there is no disk to note anything on.
		switch {
		case action == plan.Unhold:
			err = h.Hold(pv.Name, false)
		case w.Name != "":
			err = h.Retain(pv.Name)
		}
		if err == nil {
			_, err = c.API.ReleaseFinalizer(ctx, pv)
		}
		return err
	case plan.Hold: // its data is to go with the object again
		now, err := c.API.HoldVolume(ctx, pv)
		if err == nil && now != nil {
			err = h.Hold(pv.Name, true)
		}
		return err
	}
	if err == nil {
		err = c.stillGoing(ctx, w, h, pv)
	}
	if err != nil {
		return err
	}
	return c.letGo(ctx, w, pv)
}

// letGo removes the object of a volume whose directory is out of the way, and then has the trash
// know that. Nothing else may tell it: who finds the directory whole in the trash, and no object,
// cannot know whether an administrator had set another policy and forced the finalizer off. So what
// dies in between is kept:
//
//	finalizer off       an object without it: the next start goes on, or puts the directory back
//	object deleted      a directory that is whole in the trash and has no object: kept and told (plan.ForRecord)
//	discarded           a directory whose files may go: purged
//
// A daemon that is told to end does all of it first. What it did without a response is remembered,
// and looked at again before it ends (finishLetGo).
func (c *volumes) letGo(ctx context.Context, w *poolWorker, pv *corev1.PersistentVolume) error {
	ctx, cancel := inTime(ctx)
	defer cancel()
	key := removingKey(pv.Name)
	c.begun.Begin(key)
	defer c.begun.End(key)
	now, err := c.API.ReleaseFinalizer(ctx, pv)
	switch {
	case err != nil:
		return err
	case now == nil && !c.begun.Has(letGoKey(pv.Name)):
		return errRemovedByOthers
	}
	c.begun.Begin(letGoKey(pv.Name))
	if now != nil {
		c.begun.Note(letGoKey(pv.Name), string(now.UID)+" "+now.ResourceVersion)
		if err := c.API.DeleteVolume(ctx, now); err != nil {
			if refused(err) { // it is there still, and may be changed
				c.begun.End(letGoKey(pv.Name))
			}
			return err
		}
	}
	return c.discard(ctx, w, pv.Name)
}

// errRemovedByOthers: another client removed the object while this daemon moved its directory away:
// an administrator, perhaps, who had set another policy and forced the finalizer off.
var errRemovedByOthers = errors.New("another client removed the volume object")

// discard has a volume's files go whose object this process let go. It opens the pool anew: what
// was decided is done, and the handle that it was decided with may have ended since, by a pool that
// was closed for a moment.
func (c *volumes) discard(ctx context.Context, w *poolWorker, pv string) error {
	if w.elector != nil { // this process may have been paused since
		if gone, err := c.gone(ctx, pv); err != nil || !gone {
			return err
		}
	}
	h, _ := w.disk.Open(ctx)
	if err := h.Discard(pv); err != nil {
		return err
	}
	c.begun.End(letGoKey(pv))
	w.tally.place(pv, string(record.InTrash))
	w.purges.Add(item{name: pv})
	return nil
}

// refused reports whether the API server certainly did not do what it was asked. 503 and 429 are
// not certain: a proxy before it says so, too, of a request that it had passed on (Envoy, when the
// connection is reset before the response). A conflict is: DeleteVolume looks whether the object is
// there still.
func refused(err error) bool {
	for _, is := range []func(error) bool{
		apierrors.IsConflict, apierrors.IsForbidden, apierrors.IsUnauthorized, apierrors.IsInvalid,
	} {
		if is(err) {
			return true
		}
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// removingKey: this process is about to let an object go. letGoKey: it took the finalizer off, with
// nothing changed since that says that the volume is to stay.
func removingKey(pv string) string { return "removing/" + pv }

func letGoKey(pv string) string { return "let go/" + pv }

// stillGoing reads the lease and the object once more, of a volume in a shared pool whose directory
// is out of the way: a daemon that was paused before that step may have made it long after it was
// decided. What is in the trash can be put back as long as its object is there.
func (c *volumes) stillGoing(ctx context.Context, w *poolWorker, h disk.Handle, pv *corev1.PersistentVolume) error {
	if w.elector == nil {
		return nil
	}
	if err := w.elector.Fence(ctx); err != nil {
		return err
	}
	now, err := c.API.GetVolume(ctx, pv.Name)
	if err != nil || now == nil {
		return err
	}
	facts, err := c.volumeFacts(ctx, w, h, now)
	if err != nil {
		return err
	}
	switch verdict := plan.ForVolume(facts); verdict.Action {
	case plan.Delete, plan.Archive, plan.LetGo:
		return nil
	default:
		return fmt.Errorf("%w: the volume changed while its directory was moved away", leadership.ErrNotLeading)
	}
}

// finishRemoval finishes a removal whose last response was lost, or whose pool went away before the
// trash was told: the object went, or is about to, and no worker was told to empty the trash. What
// is whole in the trash, and was not let go by this process, is looked at like every record without
// an object. What is elsewhere is left to the comparison of all records.
func (c *volumes) finishRemoval(ctx context.Context, w *poolWorker, name string) (time.Duration, error) {
	h, ok := w.disk.Open(ctx)
	switch {
	case !ok && c.begun.Has(letGoKey(name)):
		// The comparison of records when the pool opens does not do: it keeps what has an object,
		// which others may hold for a moment, and another daemon may work in the pool by then,
		// which cannot know who let the object go.
		return recheckAgain, nil
	case !ok:
		return 0, nil // the pool's records are gone through when it opens again
	}
	rec, err := h.Lookup(name)
	switch {
	case errors.Is(err, record.ErrDamaged):
		return 0, nil
	case err != nil:
		return 0, err
	case rec != nil && rec.Place == record.InTrash && c.begun.Has(letGoKey(name)):
		return 0, c.discard(ctx, w, name)
	case rec != nil && rec.Place == record.InTrash && !w.elector.Leads():
		// The daemon that works in the pool may be about to discard it. This one looks at all
		// records when it leads.
	case rec != nil && (rec.Place == record.InTrash || rec.Unheld && rec.Place == record.InPool):
		_, err = c.record(ctx, w, h, *rec, c.comparisonOf(*rec, h.State.Report.Mark))
		return 0, err
	case rec != nil && (rec.Place == record.Emptying || rec.Place == record.InArchive):
		wait := time.Duration(0)
		if _, watched := c.Listers.Volumes.Get(name); watched {
			wait = lag // its going was not watched yet, and purge would send it here again
		}
		w.purges.AddAfter(item{name: name}, wait)
	}
	return 0, nil
}

// purge empties one volume's place in the trash, in the background: its object is gone by then, or
// is about to go. While the pool is closed that waits. The comparison of records when it opens does
// not do: it passes over what has an object by the watch, which may be late.
func (c *volumes) purge(ctx context.Context, w *poolWorker, pv string) (after time.Duration, err error) {
	defer func() { c.NodeRequest("the purge of volume "+pv, err) }()
	h, ok := w.disk.Open(ctx)
	if !ok {
		return lag, nil
	}
	if now, watched := c.Listers.Volumes.Get(pv); watched && plan.InUse(now) {
		w.volumes.Add(item{name: pv}) // it came back: what is whole is put back, and what is left stays
		return 0, nil
	}
	if of := c.copies.holder(pv); of != nil {
		c.copies.requeueContent(of)
		if of.DeletionTimestamp != nil {
			return lag, nil // that it was let go was perhaps not watched yet
		}
		return 0, nil
	}
	if going, err := c.mayPurge(ctx, w, pv); !going || err != nil {
		return 0, ignoreNotLeading(err)
	}
	key := "purge/" + pv
	if err = h.Purge(pv); err == nil {
		w.tally.place(pv, "")
	}
	switch {
	case err == nil, ctx.Err() != nil:
		c.begun.End(key)
		c.said.Forget(key)
		return 0, nil
	case errors.Is(err, volume.ErrDirectoryReplaced):
		wake.Signal(w.kick)
		return 0, err
	}
	c.begun.Begin(key)
	if c.said.New(key, err.Error()) {
		c.Metrics.Volume(w.Name, plan.ReasonPurgeFailed)
		c.Log.Warn(err.Error(), "reason", plan.ReasonPurgeFailed, "volume", pv, "pool", w.Name)
		c.Events.Event(report.Node(c.Node), corev1.EventTypeWarning, plan.ReasonPurgeFailed, err.Error())
	}
	return purgeAgain(c.begun.Since(key)), nil
}

// purgeAgain is how long after a purge that failed the next one begins: as long as they have
// failed, because what fails on a filesystem that was read-only for a moment, too short for the
// gate to close, goes on soon, and what a tenant made hard to remove is walked through seldom.
func purgeAgain(failed time.Duration) time.Duration {
	return min(max(failed, time.Second), 10*time.Minute)
}

// mayPurge: in a shared pool nothing is purged but by the daemon that works there, and nothing
// whose object is still there.
func (c *volumes) mayPurge(ctx context.Context, w *poolWorker, pv string) (bool, error) {
	if w.elector == nil {
		return true, nil
	}
	if err := w.elector.Fence(ctx); err != nil {
		return false, err
	}
	return c.gone(ctx, pv)
}

// gone reports whether a volume's object is not there any more, or not held by this program.
func (c *volumes) gone(ctx context.Context, pv string) (bool, error) {
	now, err := c.API.GetVolume(ctx, pv)
	return err == nil && (now == nil || !slices.Contains(now.Finalizers, plan.Finalizer)), err
}

// letGoAgain is the pause between two tries of finishLetGo.
const letGoAgain = 100 * time.Millisecond

// finishLetGo looks again at each volume that this process let go and got no response for, at its
// end, because the next process cannot know who removed the object, and keeps the directory. The
// pauses between two tries of the queue are up to half a minute; these are short, and all of it
// takes no longer than grace.
func (c *volumes) finishLetGo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { c.copies.finishContents(ctx) })
	for _, pv := range c.begun.Under(letGoKey("")) {
		for name, w := range c.workers {
			if name != "" {
				all.Go(func() { c.finish(ctx, w, pv) })
			}
		}
	}
	waitFor(&all, grace)
}

// finish has a volume's files go that this process let go, if they are in this pool.
func (c *volumes) finish(ctx context.Context, w *poolWorker, pv string) {
	for ctx.Err() == nil && c.begun.Has(letGoKey(pv)) {
		h, ok := w.disk.Open(ctx)
		if !ok {
			return
		}
		if rec, err := h.Lookup(pv); err != nil || rec == nil || rec.Place != record.InTrash {
			return
		}
		if _, err := c.volume(ctx, w, pv); err == nil {
			return
		}
		wake.Wait(ctx, letGoAgain, nil)
	}
}

// staysAfterAll forgets that a volume was let go whose object the watch brings as one that is to
// stay: its policy was changed, or the API server was restored.
//
// The watch may be behind what was read from the API. Changes of one object come in their order,
// and an object that was let go is known by the version that it had then. A change between the one
// that the watch brought before and that version was made before the object was let go, and proves
// nothing: forgotten for it, the directory would be kept in the trash for ever. A restored server
// counts its versions on from an earlier one, so that its object is not newer than the known one,
// or is not known. Where the watch was behind that, too, the versions cannot tell the two apart:
// the API is asked.
func (c *volumes) staysAfterAll(was, now *corev1.PersistentVolume) {
	if plan.Going(now) || !c.begun.Has(letGoKey(now.Name)) {
		return
	}
	if uid, version, _ := strings.Cut(c.begun.Noted(letGoKey(now.Name)), " "); was != nil && was.UID == now.UID && string(now.UID) == uid &&
		plan.Newer(now.ResourceVersion, was.ResourceVersion, false) &&
		plan.Newer(version, now.ResourceVersion, false) {
		c.workerOf(now).volumes.Add(item{name: now.Name})
		return
	}
	c.begun.End(letGoKey(now.Name))
}
