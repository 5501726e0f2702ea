package controllers

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/everynode"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

// volumes removes and keeps what was made: it looks at volume objects, at the trash, and at the
// records of each pool. It also has the inline volumes, which have no object.
type volumes struct {
	*frame
	claims  *claims
	copies  *copies
	pools   *pools
	cluster *cluster
}

// givenUpAfter is how long after an adopted volume's object its record may go.
const givenUpAfter = 5 * time.Second

// VolumeChanged is called with each volume of this node that came, changed or went (now is nil).
func (c *volumes) VolumeChanged(was, now *corev1.PersistentVolume) {
	v := cmp.Or(now, was)
	w := c.workerOf(v)
	if now != nil {
		c.claims.requeueGrowing(now)
		c.staysAfterAll(was, now)
		c.notAsRecorded(w, was, now)
	} else {
		c.said.Forget(string(was.UID))
		if slices.Contains(was.Finalizers, plan.Finalizer) {
			wake.Signal(w.recheck) // it did not go by our hand: its record says what is left
		}
		if plan.Adopted(was) { // when it is given up, its record goes last
			time.AfterFunc(givenUpAfter, func() { wake.Signal(w.recheck) })
		}
		w.everyNode.Forget(was)
	}
	if was == nil && plan.Older(v) {
		if plan.Adopted(v) && w.Name != "" {
			// another process recorded it: counted before the next volume is made
			w.Account.Forget()
		}
		// a restored server may have it back, or people made it for an orphaned directory
		wake.Signal(w.recheck)
	}
	stays := was != nil && now != nil && plan.NeedsWork(was) && now.DeletionTimestamp == nil // what was begun may have to be undone
	// One that has a directory on each node concerns this one as long as it is there, and when it
	// goes. The record of one that went is to learn that it is retained.
	looks := now == nil && v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete ||
		now != nil && needsLook(now)
	if plan.OnEveryNode(v) || looks || stays {
		w.volumes.Add(item{name: v.Name})
	}
}

// notAsRecorded has a volume looked at whose object came into use in another way than by this
// daemon, as its directory may be in the archive, or gone; and records compared with an object
// whose size a hand has changed.
func (c *volumes) notAsRecorded(w *poolWorker, was, now *corev1.PersistentVolume) {
	if w.Name == "" || was == nil {
		return
	}
	if was.Annotations[plan.SizeAnnotation] != now.Annotations[plan.SizeAnnotation] {
		wake.Signal(w.recheck) // adopt noted another size
	}
	inUse := now.Status.Phase == corev1.VolumeBound || now.Status.Phase == corev1.VolumeAvailable
	ours := now.Spec.ClaimRef != nil && c.claims.hasPublished(string(now.Spec.ClaimRef.UID))
	if inUse && was.Status.Phase != now.Status.Phase && !ours && !plan.OnEveryNode(now) {
		w.volumes.Add(item{name: now.Name})
	}
	size, _ := plan.Bytes(plan.SizeOf(now))
	if before, _ := plan.Bytes(plan.SizeOf(was)); size != before {
		p, known := w.disk.Account.PromisedTo(now.Name)
		if known && p.Volume != uint64(max(size, 0)) {
			wake.Signal(w.recheck)
		}
	}
}

// volume looks at one volume object that is released or being deleted. What it destroys it decides
// on objects read from the API just now, not on the watch's memory.
func (c *volumes) volume(ctx context.Context, w *poolWorker, name string) (after time.Duration, err error) {
	defer func() { c.noteVolume(name, err) }()
	if done, after, err := w.everyNode.Look(ctx, name); done {
		return after, err
	}
	pv, err := c.API.GetVolume(ctx, name)
	if err != nil {
		return 0, err
	}
	if pv == nil || plan.Leaving(pv) && !plan.OnEveryNode(pv) {
		return c.finishRemoval(ctx, w, name)
	}
	if !plan.Going(pv) {
		c.begun.End(letGoKey(name))
	}
	h, _ := w.disk.Open(ctx)
	facts, err := c.volumeFacts(ctx, w, h, pv)
	if err != nil {
		return 0, c.diskFailed(w, pv, err)
	}
	verdict := plan.ForVolume(facts)
	w.tally.lack(name, verdict.Reason == plan.ReasonVolumeLost)
	switch verdict.Action {
	case plan.PutBack:
		return 0, c.putBack(ctx, w, h, facts, verdict)
	case plan.Ignore, plan.Wait, plan.Refuse:
		c.reportVolume(w, pv, verdict)
		return c.lookAgainAfter(string(pv.UID), verdict), nil
	}
	if plan.OnEveryNode(pv) {
		return w.everyNode.Detach(ctx, h, pv, verdict)
	}
	switch err := c.remove(ctx, w, h, pv, verdict.Action); {
	case errors.Is(err, errRemovedByOthers):
		return c.finishRemoval(ctx, w, name)
	case errors.Is(err, volume.ErrNotEmpty):
		verdict = plan.NotEmpty(pv)
		c.reportVolume(w, pv, verdict)
		return verdict.After, nil
	case err != nil:
		return 0, ignoreNotLeading(c.diskFailed(w, pv, err))
	case verdict.Action == plan.Hold, verdict.Action == plan.Unhold:
		return 0, nil
	}
	c.Metrics.Volume(w.Name, verdict.Reason)
	c.Log.Info(removed[verdict.Action], "reason", verdict.Reason, "volume", pv.Name, "claim", claimOf(pv), "pool", w.Name)
	if w.Name != "" {
		w.purges.Add(item{name: pv.Name})
	}
	return 0, nil
}

func (c *volumes) volumeFacts(ctx context.Context, w *poolWorker, h disk.Handle, pv *corev1.PersistentVolume) (plan.VolumeFacts, error) {
	f := plan.VolumeFacts{Volume: pv, Self: c.Self}
	var err error
	if f.ClaimExists, f.Elsewhere, err = c.claimExists(ctx, pv); err != nil || w.Name == "" {
		return f, err
	}
	f.Pool, f.Silent = &w.Pool, w.elector.Role() == leadership.Standby
	if !h.State.Removable() {
		_, f.Closed = h.State.Closed()
	}
	if f.Closed = w.elector.Blocked(f.Closed); f.Closed != "" {
		return f, nil
	}
	f.Record, err = h.Lookup(pv.Name)
	if errors.Is(err, record.ErrDamaged) {
		f.Unreadable = err.Error()
		return f, nil
	}
	if err != nil || f.Record != nil {
		return f, err
	}
	uid := ""
	if name, err := plan.DirectoryOf(w.Pool, pv); err == nil {
		if f.Foreign, err = h.Exists(name); f.Foreign || err != nil {
			return f, err
		}
		uid = string(pv.Spec.ClaimRef.UID)
	}
	f.Record, err = h.LookupArchived(pv.Name, uid)
	return f, err
}

// claimOf is namespace/name of the claim that a volume was made for, "" if its object names none.
func claimOf(pv *corev1.PersistentVolume) string {
	if ref := pv.Spec.ClaimRef; ref != nil {
		return ref.Namespace + "/" + ref.Name
	}
	return ""
}

// claimExists reports whether a volume's claim exists, by UID, and whether it has another volume.
func (c *volumes) claimExists(ctx context.Context, pv *corev1.PersistentVolume) (exists, elsewhere bool, err error) {
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return false, false, nil
	}
	claim, err := c.API.GetClaim(ctx, ref.Namespace, ref.Name)
	if claim == nil || claim.UID != ref.UID {
		return false, false, err
	}
	return true, claim.Spec.VolumeName != "" && claim.Spec.VolumeName != pv.Name, err
}

// diskFailed tells an error and passes it on, so that it is tried again.
func (c *volumes) diskFailed(w *poolWorker, pv *corev1.PersistentVolume, err error) error {
	switch {
	case errors.Is(err, volume.ErrDirectoryReplaced):
		wake.Signal(w.kick)
	case err == nil, errors.Is(err, leadership.ErrNotLeading), errors.Is(err, context.Canceled),
		report.OfRequest(err): // the latter is told where it lasts
	default:
		c.reportVolume(w, pv, plan.Verdict{Action: plan.Wait, Reason: plan.ReasonVolumeFailedDelete, Message: err.Error()})
	}
	return err
}

func (c *volumes) reportVolume(w *poolWorker, pv *corev1.PersistentVolume, v plan.Verdict) {
	if v.Reason == "" || !c.said.New(string(pv.UID), v.Reason+" "+v.Message) {
		return
	}
	c.Metrics.Volume(w.Name, v.Reason)
	c.Log.Warn(v.Message, "reason", v.Reason, "volume", pv.Name, "pool", w.Name)
	c.Events.Event(report.Volume(pv), corev1.EventTypeWarning, v.Reason, v.Message)
	if ref := pv.Spec.ClaimRef; ref != nil && v.Reason == plan.ReasonVolumeLost { // whose pod finds nothing
		c.Events.Event(*ref, corev1.EventTypeWarning, v.Reason, v.Message)
	}
}

// putBack takes a volume out of the trash, whose object and claim a restored API server has again.
// One worker at a time has a volume, so no other one puts it there meanwhile.
func (c *volumes) putBack(ctx context.Context, w *poolWorker, h disk.Handle, f plan.VolumeFacts, v plan.Verdict) error {
	pv := f.Volume
	if err := w.elector.Fence(ctx); err != nil {
		return ignoreNotLeading(err)
	}
	if err := h.PutBack(pv.Name, f.Record.ClaimUID); err != nil {
		return c.diskFailed(w, pv, err)
	}
	c.begun.End(letGoKey(pv.Name))
	w.everyNode.Attached(pv)
	if plan.NeedsWork(pv) {
		w.volumes.Add(item{name: pv.Name}) // an object that was deleted is let go now
	}
	c.Metrics.Volume(w.Name, v.Reason)
	c.Log.Info(v.Message, "reason", v.Reason, "volume", pv.Name, "pool", w.Name)
	c.Events.Event(report.Volume(pv), corev1.EventTypeNormal, v.Reason, v.Message)
	if ref := pv.Spec.ClaimRef; ref != nil {
		c.Events.Event(*ref, corev1.EventTypeNormal, v.Reason, v.Message)
	}
	return nil
}

func (c *volumes) newDirectory(w *poolWorker) *everynode.Directory {
	return everynode.New(everynode.Options{
		Self: c.Self, Pool: w.Name, Scope: w.Scope, Disk: w.disk, API: c.API,
		Watched: c.watched, Nodes: c.cluster.countedLately, InFlight: c.claims.busy,
		PoolOf: func(pv *corev1.PersistentVolume) plan.Pool { return c.poolOf(w, pv) },
		Compare: func(ctx context.Context, h disk.Handle, rec record.Record) error {
			_, err := c.record(ctx, w, h, rec, c.comparisonOf(rec, h.State.Report.Mark))
			return err
		},
		Purge:      func(pv string) { w.purges.Add(item{name: pv}) },
		LookAtPool: func() { wake.Signal(w.kick) },
		DiskFailed: func(pv *corev1.PersistentVolume, err error) error { return c.diskFailed(w, pv, err) },
		Events:     c.Events, Metrics: c.Metrics, Log: c.Log,
	})
}

// poolOf returns the pool's own settings for a class that is gone, or that was changed since: a pod
// that has the volume already keeps what it has.
func (c *volumes) poolOf(w *poolWorker, pv *corev1.PersistentVolume) plan.Pool {
	if class, known := c.Listers.Classes.Get(plan.VolumeClass(pv)); known {
		if pool, refusal := c.Resolve(class, c.configured); refusal == nil && pool.Name == w.Name {
			return pool
		}
	}
	return w.Pool
}
