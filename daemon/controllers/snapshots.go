package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// contentWorkers is how many VolumeSnapshotContents are looked at once. None of them waits for a
// copy.
const contentWorkers = 4

// ContentChanged is called with each VolumeSnapshotContent of the daemon's driver that came,
// changed or went (now is nil).
func (c *copies) ContentChanged(was, now *snapshotapi.Content) {
	if now != nil {
		c.contentStaysAfterAll(now)
	} else {
		now = was
	}
	c.requeueContent(now)
	if !now.Ready() || was != nil && was.Ready() {
		return
	}
	for _, claim := range c.Listers.Claims.List() { // that wait for it
		if plan.IsRestore(claim) && claim.Namespace == now.Spec.SnapshotRef.Namespace && plan.SourceOfCopy(claim) == now.Spec.SnapshotRef.Name {
			c.requeueClaim(claim)
		}
	}
}

func contentItem(of *snapshotapi.Content) item { return item{name: of.Name, uid: string(of.UID)} }

func (c *copies) requeueContent(of *snapshotapi.Content) { c.contents.Add(contentItem(of)) }

// requeueContents looks again at each content: a pool opened, or the API server responds again.
func (c *copies) requeueContents() {
	if c.Contents == nil {
		return
	}
	for _, one := range c.Contents.List() {
		c.requeueContent(one)
	}
}

// content looks at one VolumeSnapshotContent. What it writes or destroys it decides on an object
// read from the API just now.
func (c *copies) content(ctx context.Context, i item) (time.Duration, error) {
	after, err := c.lookAtContent(ctx, i)
	c.noteContent(i, err)
	if apierrors.IsConflict(err) {
		return contentAgain, nil // it was changed, and what is watched soon says how
	}
	return after, err
}

func (c *copies) lookAtContent(ctx context.Context, i item) (time.Duration, error) {
	known, is := c.Contents.Get(i.name)
	if !is || string(known.UID) != i.uid {
		c.dropContent(i)
		return c.finishContent(ctx, i.uid)
	}
	if done, err := c.contentLetGo(ctx, i); done || err != nil {
		return 0, err
	}
	f, t := c.contentFacts(ctx, known)
	verdict := plan.ForContent(f)
	switch verdict.Action {
	case plan.Provision:
		var err error
		if f.Origin, err = c.originOf(ctx, known, t); err != nil {
			return 0, err
		}
		verdict = plan.ForContent(f)
	case plan.Publish, plan.Delete, plan.Retain, plan.LetGo, plan.PutBack:
		now, err := c.Snapshots.GetContent(ctx, i.name)
		if err != nil || now == nil || string(now.UID) != i.uid {
			return 0, err // the watch brings that it went
		}
		f.Content = now
		verdict = plan.ForContent(f)
	}
	return c.actOnContent(ctx, f, t, verdict)
}

// contentAgain is when to look again at a content that was changed while it was worked on.
const contentAgain = 100 * time.Millisecond

func (c *copies) actOnContent(ctx context.Context, f plan.ContentFacts, t takenIn, v plan.Verdict) (time.Duration, error) {
	uid := string(f.Content.UID)
	if f.Content.DeletionTimestamp != nil {
		c.running.cancel(uid)
	}
	switch {
	case v.Action == plan.Ignore, v.Action == plan.Wait && v.Reason == "":
		return v.After, nil
	case v.Action == plan.PutBack:
		return 0, c.putSnapshotBack(f, t, v)
	case v.Reason == plan.ReasonSnapshotLost:
		c.tellOfContent(f.Content, v)
		return v.After, nil
	}
	if err := c.takeContent(ctx, &f); err != nil {
		return 0, err
	}
	switch v.Action {
	case plan.Provision:
		return c.takeSnapshot(ctx, f, t)
	case plan.Publish:
		return 0, c.announce(ctx, f, t, *f.Snapshot)
	case plan.Delete:
		return 0, c.removeSnapshot(ctx, f, t)
	case plan.Retain:
		if err := t.h.Retain(f.Snapshot.PV); err != nil {
			return 0, err
		}
		c.Log.Info("the data of a snapshot is kept", "reason", v.Reason, "snapshot", f.Snapshot.PV, "pool", f.Pool.Name)
		_, err := c.Snapshots.ReleaseContent(ctx, f.Content)
		return 0, err
	case plan.LetGo: // its data is not here, or stays
		now, err := c.clearContent(ctx, f.Content)
		if err == nil {
			_, err = c.Snapshots.ReleaseContent(ctx, now)
		}
		return 0, err
	case plan.Wait, plan.Refuse:
		if f.Origin != nil && f.Snapshot != nil { // another claim's data may be in it
			c.running.cancel(uid)
			t.w.purges.Add(item{name: f.Snapshot.PV})
			if err := t.h.Undo(f.Snapshot.PV); err != nil && !errors.Is(err, volume.ErrPlace) {
				return 0, err
			}
		}
		return v.After, c.refuseContent(ctx, f.Content, v)
	}
	return 0, nil
}

// takeContent writes this node's name on a content. Where the policies confine tokens, what another
// node has taken stays so.
func (c *copies) takeContent(ctx context.Context, f *plan.ContentFacts) error {
	held := plan.NodeOfContent(f.Content)
	if held == c.Node {
		return nil
	}
	taken, err := c.Snapshots.TakeContent(ctx, f.Content, c.Node)
	if err == nil {
		f.Content = taken
	} else if held != "" && report.Permanent(err) {
		c.tellOfContent(f.Content, plan.ContentHeld(*f, err))
	}
	return err
}

// dropContent ends the work on a content that is gone. What was made for it and is not whole goes
// by its record.
func (c *copies) dropContent(i item) {
	c.said.Forget(i.uid)
	c.running.cancel(i.uid)
	c.claims.forget(i.uid)
	for _, w := range c.workers {
		if w.TakesSnapshots() {
			wake.Signal(w.recheck)
		}
	}
}

// takenIn is the pool in which a content's snapshot is, or is to be made.
type takenIn struct {
	w *poolWorker
	h disk.Handle
}

// contentFacts looks in this node's pools for the content's snapshot, and for the volume that it is
// made of.
func (c *copies) contentFacts(ctx context.Context, of *snapshotapi.Content) (f plan.ContentFacts, t takenIn) {
	f = plan.ContentFacts{Self: c.Self, Content: of, Nodes: c.cluster.lastNodeCount()}
	state := "stays"
	if of.DeletionTimestamp != nil {
		state = "goes"
	}
	f.Age = c.claims.chosen(string(of.UID), state)
	f.Unread = c.eachPool(ctx, func(w *poolWorker, h disk.Handle) (found bool, err error) {
		snapshot, err := h.LookupSnapshot(of.Handle())
		if err != nil {
			return false, err
		}
		var source *record.Record
		if volume := of.Spec.Source.VolumeHandle; volume != nil {
			source, err = h.Lookup(*volume)
		}
		if snapshot != nil && errors.Is(err, record.ErrDamaged) { // of the volume: the snapshot has its own
			err = nil
		}
		found = err == nil && (snapshot != nil || source != nil)
		if found { // what is known is known with the pool that has it
			f.Snapshot, f.Source, f.Pool, t = snapshot, source, w.Pool, takenIn{w, h}
		}
		return found, err
	})
	if t.w == nil {
		if name := of.Spec.Source.VolumeHandle; name != nil { // which is the volume's name
			volume, watched := c.Listers.Volumes.Get(*name)
			f.Ours = watched && c.OfNode(volume)
		}
		return f, t
	}
	f.Former = t.h.State.Report.Mark.Former()
	f.Shared = slices.ContainsFunc(c.Contents.List(), func(other *snapshotapi.Content) bool {
		return other.UID != of.UID && other.DeletionTimestamp == nil &&
			other.Handle() == of.Handle()
	})
	_, f.Closed = t.h.State.Closed()
	f.Room = t.h.RoomFor(of.Handle())
	if name := of.Spec.Class; name != nil && of.DeletionTimestamp == nil && !of.Ready() {
		var err error
		if f.Class, err = c.Snapshots.GetSnapshotClass(ctx, *name); err != nil {
			f.NoClass = err.Error()
		}
	}
	return f, t
}

// originOf reads whose the volume of a content is now. It is asked for when all else is fine,
// before a copy and when that has ended.
func (c *copies) originOf(ctx context.Context, of *snapshotapi.Content, t takenIn) (*plan.Origin, error) {
	var o plan.Origin
	ref := of.Spec.SnapshotRef
	if t.w.SnapshotSpace > 0 {
		records, err := t.h.Records()
		if err != nil {
			return nil, err
		}
		o.Promised = plan.SnapshotsOf(ref.Namespace, of.Handle(), records)
	}
	var err error
	if o.Volume, err = c.API.GetVolume(ctx, *of.Spec.Source.VolumeHandle); err != nil {
		return nil, err
	}
	if o.Snapshot, err = c.Snapshots.GetSnapshot(ctx, ref.Namespace, ref.Name); err != nil {
		return nil, err
	}
	if o.Snapshot != nil && o.Snapshot.UID != ref.UID {
		o.Snapshot = nil
	}
	if o.Volume != nil && o.Volume.Spec.ClaimRef != nil {
		claim := o.Volume.Spec.ClaimRef
		o.Claim, err = c.API.GetClaim(ctx, claim.Namespace, claim.Name)
		if o.Claim != nil && o.Claim.UID != claim.UID {
			o.Claim = nil
		}
	}
	return &o, err
}

// takeSnapshot makes the copy, beside the worker, and says that it is ready when it is.
func (c *copies) takeSnapshot(ctx context.Context, f plan.ContentFacts, t takenIn) (time.Duration, error) {
	made, again := snapshotSpec(f), contentItem(f.Content)
	if f.Content.Failure() != "" && !c.running.known(again.uid) { // it is over
		none := false
		if err := c.Snapshots.SetContentStatus(ctx, f.Content, snapshotapi.ContentStatus{ReadyToUse: &none}); err != nil {
			return 0, err
		}
	}
	if f.Pool.PausesFor(f.Class) {
		made.Pause = c.pauses(again.uid, f.Pool.Name, made.Origin.Name)
	}
	whole, err := c.copied(ctx, t.w, again.uid, made, func() { c.contents.Add(again) })
	switch {
	case err != nil:
		return c.snapshotFailed(ctx, f, t, err)
	case !whole:
		return 0, nil
	}
	rec, err := t.h.LookupSnapshot(made.PV)
	if err != nil || rec == nil {
		c.running.cancel(again.uid)
		return lag, err
	}
	now, err := c.Snapshots.GetContent(ctx, f.Content.Name)
	if err != nil || now == nil || now.UID != f.Content.UID || now.DeletionTimestamp != nil {
		return lag, err
	}
	f.Content = now
	return 0, c.announce(ctx, f, t, *rec)
}

// How the files of a copy came to it, for people.
const (
	atOnce   = ", all files at one moment, as a power cut would have left them"
	oneByOne = ", copied one file after another: what was written meanwhile may be in some files and not in others"
)

// announce says that a snapshot is ready. A crash before the record says so leaves one that is made
// again; one after it leaves a snapshot that is whole, of which the next start says that it is
// ready.
func (c *copies) announce(ctx context.Context, f plan.ContentFacts, t takenIn, rec record.Record) error {
	if err := t.h.Published(rec.PV); err != nil {
		return err
	}
	ready, created := true, rec.Created.UnixNano()
	err := c.Snapshots.SetContentStatus(ctx, f.Content, snapshotapi.ContentStatus{
		SnapshotHandle: &rec.PV, CreationTime: &created, RestoreSize: &rec.Requested, ReadyToUse: &ready,
	})
	if err != nil {
		return err
	}
	uid := string(f.Content.UID)
	made := c.running.take(uid)
	how := made.howMade()
	if rec.Atomic {
		how = atOnce
	}
	message := fmt.Sprintf("snapshot %s is on node %s in pool %s%s%s", rec.PV, c.Node, f.Pool.Name, how, made.lacking())
	c.said.Forget(uid)
	c.Metrics.Snapshot(plan.ReasonSnapshotReady)
	c.Log.Info(message, "reason", plan.ReasonSnapshotReady, "snapshot", f.Content.Spec.SnapshotRef.Namespace+"/"+f.Content.Spec.SnapshotRef.Name, "pool", f.Pool.Name)
	c.Events.Event(report.Snapshot(f.Content.Spec.SnapshotRef), corev1.EventTypeNormal, plan.ReasonSnapshotReady, message)
	return nil
}

// snapshotFailed: what is left of a copy is in the trash, and is made anew once it is gone from
// there.
func (c *copies) snapshotFailed(ctx context.Context, f plan.ContentFacts, t takenIn, err error) (time.Duration, error) {
	t.w.purges.Add(item{name: f.Content.Handle()})
	switch {
	case errors.Is(err, volume.ErrDirectoryReplaced):
		wake.Signal(t.w.kick)
		fallthrough
	case errors.Is(err, volume.ErrPlace), errors.Is(err, context.Canceled):
		return lag, nil
	}
	v := plan.Verdict{Reason: plan.ReasonSnapshotFailed, Message: "node " + c.Node + ": " + err.Error()}
	if errors.As(err, new(*capacity.FullError)) {
		v.Reason = plan.ReasonNotEnoughSpace
	}
	if said := c.refuseContent(ctx, f.Content, v); said != nil {
		return 0, said
	}
	if writesAgain(err) {
		return copyAgain, nil
	}
	return 0, err
}

// refuseContent says in the content's status why there is no snapshot, from where the
// snapshot-controller takes it to the VolumeSnapshot. The status has what is so now, also if that
// was told a while ago, and something else since.
func (c *copies) refuseContent(ctx context.Context, of *snapshotapi.Content, v plan.Verdict) error {
	uid := string(of.UID)
	told := !c.said.New(uid, v.Reason+" "+v.Message)
	switch {
	case v.Reason == "", told && words.Same(of.Failure()) == words.Same(v.Message):
		return nil
	case !c.mayWarn(of.Spec.SnapshotRef.Namespace):
		c.said.Retract(uid)
		return nil
	case !told:
		c.warnOfContent(of, v)
	}
	ready := false
	err := c.Snapshots.SetContentStatus(ctx, of, snapshotapi.ContentStatus{ReadyToUse: &ready, Error: snapshotapi.NewError(v.Message, time.Now())})
	if err != nil {
		c.said.Retract(uid)
	}
	return err
}

// tellOfContent tells what no status can have: that of a content that is ready, or that another
// node has taken.
func (c *copies) tellOfContent(of *snapshotapi.Content, v plan.Verdict) {
	uid := string(of.UID)
	switch {
	case !c.said.New(uid, v.Reason+" "+v.Message):
	case !c.mayWarn(of.Spec.SnapshotRef.Namespace):
		c.said.Retract(uid)
	default:
		c.warnOfContent(of, v)
	}
}

func (c *copies) warnOfContent(of *snapshotapi.Content, v plan.Verdict) {
	ref := of.Spec.SnapshotRef
	c.Metrics.Snapshot(v.Reason)
	c.Log.Warn(v.Message, "reason", v.Reason, "snapshot", ref.Namespace+"/"+ref.Name)
	c.Events.Event(report.Snapshot(ref), corev1.EventTypeWarning, v.Reason, v.Message)
}

// noteContent notes how the work on a VolumeSnapshotContent ended, for which its VolumeSnapshot
// waits. The policies let no event be about the content. Of success nobody is told, and nothing is
// looked up, where a copy goes on beside this (Do waits for that, and the model plays one of both).
func (c *copies) noteContent(i item, err error) {
	about := report.About{What: "VolumeSnapshotContent " + i.name}
	if err == nil {
		c.refusals.Note(about, nil)
		return
	}
	if known, is := c.Contents.Get(i.name); is {
		about.Refs = []corev1.ObjectReference{report.Snapshot(known.Spec.SnapshotRef)}
	}
	c.refusals.Note(about, err)
}

// snapshotSpec is the snapshot to be made of a volume. It is promised and limited to as much as the
// volume.
func snapshotSpec(f plan.ContentFacts) volume.Spec {
	ref, of := f.Content.Spec.SnapshotRef, f.Source
	made := volume.Spec{
		Record: record.Record{
			Kind: record.Snapshot, PV: f.Content.Handle(), Namespace: ref.Namespace, Claim: ref.Name, ClaimUID: string(ref.UID),
			Directory: f.Content.Handle(), Unpublished: true, Origin: record.Origin{Name: of.PV, UID: of.ClaimUID},
			Class: f.Class.Name, Provisioner: f.Content.Spec.Driver, Node: f.Node, Scope: f.Pool.Scope, Reclaim: f.Content.Spec.DeletionPolicy,
			Requested: of.Requested, Promised: of.Promised,
		},
		Mode: 0o700, Full: f.Pool.Snapshots == plan.SnapshotsCopy, Subvolume: f.Pool.Snapshots == plan.SnapshotsSnapshot,
	}
	if f.Pool.Quota == plan.QuotaProject {
		made.Quota, made.Project = of.Requested, true
	}
	return made
}
