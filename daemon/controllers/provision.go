package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/treecopy"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// provision makes a claim's volume and its object.
func (c *claims) provision(ctx context.Context, h disk.Handle, f plan.ClaimFacts) (time.Duration, error) {
	if len(f.Disks) > 1 {
		c.placing.Lock()
		chosen, drop, err := c.reserve(ctx, &f)
		c.placing.Unlock()
		defer drop()
		if h = chosen; err != nil {
			return c.notMade(ctx, c.workers[f.Pool.Name], f, err)
		}
	}
	pv, after, err := c.make(ctx, h, f)
	if pv == nil {
		return after, err
	}
	// A crash here leaves a directory without a volume object: the next start publishes it if the
	// claim still wants it, and otherwise removes it by its record.
	for _, holds := range []func(context.Context, plan.ClaimFacts) (bool, error){c.unchanged, c.ofClass} {
		if yes, err := holds(ctx, f); err != nil || !yes {
			return lag, err
		}
	}
	if plan.IsCopy(f.Claim) { // from here on its data may be a pod's
		if err := h.Published(pv.Name); err != nil {
			return 0, err
		}
	}
	return c.publish(ctx, f, pv)
}

// make makes a claim's directory, and returns the object for it; nil where there is no directory,
// or not yet.
func (c *claims) make(
	ctx context.Context, h disk.Handle, f plan.ClaimFacts,
) (pv *corev1.PersistentVolume, after time.Duration, err error) {
	name, err := f.Pool.Directory(plan.VolumeName(f.Claim), f.Claim.Namespace, f.Claim.Name)
	if err != nil {
		return nil, 0, err // plan's badName refused this before
	}
	w := c.workers[f.Pool.Name]
	pv = plan.NewVolume(f, name)
	// The gate was open when the facts were gathered. Create opens the pool anew and compares it
	// with the directory that was checked, so that a mount that changed since is noticed before any
	// write. Noted before, because a call that was left alone in a hung pool may still make it.
	c.inFlight.made(string(f.Claim.UID), w.Name)
	made := spec(f, pv, name)
	if plan.IsCopy(f.Claim) {
		if whole, after, err := c.cloned(ctx, w, f, made); !whole {
			return nil, after, err
		}
	}
	err = c.create(ctx, w, h, f, made)
	if errors.Is(err, volume.ErrConflict) {
		pv, err = c.createRecorded(ctx, w, h, f, err)
	}
	if err != nil {
		after, err = c.notMade(ctx, w, f, err)
		return nil, after, err
	}
	return pv, 0, nil
}

// create makes a claim's directory, or puts it back.
func (c *claims) create(ctx context.Context, w *poolWorker, h disk.Handle, f plan.ClaimFacts, made volume.Spec) error {
	err := h.Create(made)
	if !errors.Is(err, volume.ErrRemoved) {
		return err
	}
	if err := c.mayPutBack(ctx, w, f.Claim); err != nil {
		return err
	}
	made.PutBack = true
	return h.Create(made)
}

// cloned reports whether the copy for a claim is whole in the pool. If not, it begins, or goes on,
// or has failed.
func (c *claims) cloned(ctx context.Context, w *poolWorker, f plan.ClaimFacts, made volume.Spec) (bool, time.Duration, error) {
	again := claimItem(f.Claim)
	whole, err := c.copies.copied(ctx, w, again.uid, made, func() { w.claims.Add(again) })
	if err != nil {
		after, err := c.copyFailed(ctx, w, f, made.PV, err)
		return false, after, err
	}
	return whole, 0, nil
}

// notMade: a claim's directory was not made. A copy that was whole is not there any more then, or
// it is one of another source.
func (c *claims) notMade(ctx context.Context, w *poolWorker, f plan.ClaimFacts, err error) (time.Duration, error) {
	if plan.IsCopy(f.Claim) {
		c.copies.cancel(string(f.Claim.UID))
		return c.copyFailed(ctx, w, f, plan.VolumeName(f.Claim), err)
	}
	if full := new(capacity.FullError); errors.As(err, &full) {
		return c.spaceTaken(ctx, f, full.Room)
	}
	return c.createFailed(ctx, w, f, err)
}

// createRecorded finishes a volume that was made while the pool had another pattern of directories,
// and not published: its record says where it is. It returns the object for that directory, or the
// conflict if the record is of another kind.
func (c *claims) createRecorded(ctx context.Context, w *poolWorker, h disk.Handle, f plan.ClaimFacts, conflict error) (*corev1.PersistentVolume, error) {
	rec, err := h.Lookup(plan.VolumeName(f.Claim))
	if err != nil || rec == nil || rec.ClaimUID != string(f.Claim.UID) || rec.Replaced != "" {
		return nil, conflict
	}
	pv := plan.NewVolume(f, rec.Directory)
	return pv, c.create(ctx, w, h, f, spec(f, pv, rec.Directory))
}

// mayPutBack returns nil if the volume of a claim that is to be made is to be put back, which was
// removed before. The API server was restored to a day before it was made; or this daemon was
// paused after it decided to make it, and another one made it, and removes it because the claim is
// gone.
func (c *claims) mayPutBack(ctx context.Context, w *poolWorker, claim *corev1.PersistentVolumeClaim) error {
	if err := w.elector.Fence(ctx); err != nil {
		return err
	}
	now, err := c.API.GetClaim(ctx, claim.Namespace, claim.Name)
	switch {
	case err != nil:
		return err
	case now == nil || now.UID != claim.UID || now.Spec.VolumeName != "":
		return fmt.Errorf("%w: the claim changed since its volume was to be made", leadership.ErrNotLeading)
	}
	return nil
}

// unchanged asks the API server for a claim that is only remembered, because the watch broke, or
// that went out of what the watch holds since the work on it began. The object of a claim that a
// restored server has forgotten would be released at once, and then removed, together with what was
// in the directory before. What became of the claim the watch says when it is there again.
func (c *claims) unchanged(ctx context.Context, f plan.ClaimFacts) (bool, error) {
	claim := f.Claim
	if now, kept := c.Listers.Claims.Get(claim.Namespace + "/" + claim.Name); kept && c.Listers.Claims.Watched() {
		return plan.Chosen(now) == plan.Chosen(claim), nil // else it was taken over
	}
	now, err := c.API.GetClaim(ctx, claim.Namespace, claim.Name)
	if err != nil {
		return false, err
	}
	return now != nil && now.UID == claim.UID && now.ResourceVersion == claim.ResourceVersion, nil
}

// ofClass reports whether the class is still there by which a claim is this daemon's that
// kube-controller-manager has asked no provisioner for: another provisioner may have one of that
// name by now. What a class says cannot be changed, only its object replaced. Where it is only
// remembered, because the watch broke, the API server is asked.
func (c *claims) ofClass(ctx context.Context, f plan.ClaimFacts) (bool, error) {
	if !plan.OnlySelected(f.Claim) {
		return true, nil
	}
	now, known := c.Listers.Classes.Get(f.Class.Name)
	if !known || now.UID != f.Class.UID {
		return false, nil
	}
	if c.Listers.Classes.Watched() {
		return true, nil
	}
	provisioner, err := c.API.ClassProvisioner(ctx, f.Class.Name)
	if err != nil {
		return false, err
	}
	return provisioner == f.Class.Provisioner, nil
}

// spec is the volume to be made for a claim.
func spec(f plan.ClaimFacts, pv *corev1.PersistentVolume, directory string) volume.Spec {
	request, _ := plan.Bytes(pv.Spec.Capacity[corev1.ResourceStorage])
	made := volume.Spec{
		Record: record.Record{
			PV: pv.Name, Namespace: f.Claim.Namespace, Claim: f.Claim.Name, ClaimUID: string(f.Claim.UID),
			Directory: directory, OnDelete: f.Pool.OnDelete, Unpublished: f.Pool.Scope == plan.ScopeEveryNode || plan.IsCopy(f.Claim), Origin: origin(f),
			Class: f.Class.Name, Provisioner: f.Class.Provisioner, Node: f.Node, Source: f.Pool.Source, Scope: f.Pool.Scope,
			Reclaim: string(pv.Spec.PersistentVolumeReclaimPolicy), Requested: request,
		},
		Mode: f.Pool.Mode, UID: f.Pool.UID, GID: f.Pool.GID, Full: fully(f), Subvolume: f.Pool.Snapshots == plan.SnapshotsSnapshot,
	}
	if f.Pool.Quota == plan.QuotaCeph || f.Pool.Quota == plan.QuotaProject {
		made.Quota, made.Project = request, f.Pool.Quota == plan.QuotaProject
	}
	return made
}

// spaceTaken: another claim was promised the space since the facts of this one were gathered. It is
// decided again with what is left.
func (c *claims) spaceTaken(ctx context.Context, f plan.ClaimFacts, left capacity.Room) (time.Duration, error) {
	c.inFlight.abandon(string(f.Claim.UID)) // nothing was made
	f.Room = left
	return c.refuse(ctx, f, c.recount(ctx, &f, plan.ForClaim(f)))
}

// copyFailed: what is left of a copy is in the trash, and is made anew once it is gone from there.
func (c *claims) copyFailed(ctx context.Context, w *poolWorker, f plan.ClaimFacts, pv string, err error) (time.Duration, error) {
	w.purges.Add(item{name: pv})
	if errors.Is(err, volume.ErrPlace) || errors.Is(err, context.Canceled) {
		return lag, nil // an earlier try is still there
	}
	if full := new(capacity.FullError); errors.As(err, &full) {
		return c.spaceTaken(ctx, f, full.Room)
	}
	after, failed := c.createFailed(ctx, w, f, err)
	if writesAgain(failed) {
		return copyAgain, nil
	}
	return after, failed
}

// createFailed: a pool that moved is looked at before anything is said; its gate then says why.
func (c *claims) createFailed(ctx context.Context, w *poolWorker, f plan.ClaimFacts, err error) (time.Duration, error) {
	if errors.Is(err, leadership.ErrNotLeading) {
		c.Log.Info("leaves a claim whose volume was removed meanwhile", "claim", f.Claim.Namespace+"/"+f.Claim.Name, "pool", w.Name)
		return lag, nil // the watch brings what became of it
	}
	signal(w.kick)
	if ctx.Err() != nil || errors.Is(err, volume.ErrDirectoryReplaced) {
		return 0, err
	}
	reason := plan.ReasonProvisioningFailed
	switch {
	case errors.Is(err, volume.ErrNoQuota):
		reason = plan.ReasonNoQuota
	case errors.Is(err, volume.ErrSource):
		reason = plan.ReasonSource
	case errors.Is(err, treecopy.ErrNoReflink):
		reason = plan.ReasonDataSource
	}
	c.reportClaim(f.Claim, plan.Verdict{Action: plan.Wait, Reason: reason,
		Message: "node " + f.Node + ": " + err.Error()}, w.Name)
	return 0, err
}

// publish creates the object for a directory that was made.
func (c *claims) publish(
	ctx context.Context, f plan.ClaimFacts, pv *corev1.PersistentVolume,
) (time.Duration, error) {
	w := c.workers[f.Pool.Name]
	existing, err := c.API.CreateVolume(ctx, pv)
	if err != nil {
		return 0, err
	}
	if existing != nil {
		if plan.MadeElsewhere(existing, pv) {
			c.Log.Info("another node made the claim's volume",
				"claim", f.Claim.Namespace+"/"+f.Claim.Name, "volume", pv.Name)
			c.inFlight.abandon(string(f.Claim.UID))
			return time.Minute, nil
		}
		if difference := plan.Same(existing, pv); difference != "" {
			return c.nameTaken(w, f, difference), nil
		}
	}
	took := c.inFlight.published(string(f.Claim.UID))
	c.Metrics.Claim(w.Name, plan.ReasonProvisioningSucceeded, took)
	c.reportClaim(f.Claim, plan.Verdict{Action: plan.Provision, Reason: plan.ReasonProvisioningSucceeded,
		Message: fmt.Sprintf("volume %s is %s%s", pv.Name, whereOf(f), c.copies.takeNotes(f))}, w.Name)
	c.pods.waiting.Drop(f.Claim.Namespace, string(f.Claim.UID))
	c.pods.end(string(f.Claim.UID))
	return c.inFlight.awaited(string(f.Claim.UID)), nil // it is looked at once more whether the object is there
}

func whereOf(f plan.ClaimFacts) string {
	switch f.Pool.Scope {
	case plan.ScopeShared: // which nodes have it mounted, no daemon knows
		return "in shared pool " + f.Pool.Name + ", for pods on each node that has it"
	case plan.ScopeEveryNode:
		return "on every node in pool " + f.Pool.Name
	default:
		return "on node " + f.Node + " in pool " + f.Pool.Name
	}
}

// nameTakenAgain is when a claim is tried again whose volume's name is taken. No watch brings the
// end of an object without our labels.
const nameTakenAgain = 10 * time.Second

// nameTaken: the object of our name is not the one that this node would make. It may be for the
// same claim, of a node that has the same filesystem mounted, so that the directory may be in a
// pod: what was made here stays for as long as the object does, and then goes by its record.
func (c *claims) nameTaken(w *poolWorker, f plan.ClaimFacts, difference string) time.Duration {
	c.inFlight.published(string(f.Claim.UID))
	c.reportClaim(f.Claim, plan.Verdict{Action: plan.Refuse, Reason: plan.ReasonNameTaken,
		Message: fmt.Sprintf("a volume %s exists already and is not this node's: %s", plan.VolumeName(f.Claim), difference)}, w.Name)
	return nameTakenAgain
}
