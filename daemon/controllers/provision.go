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
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

// attempt has a claim's volume made, and reports the outcome. Where another claim was promised the
// space since the facts were gathered, it is decided again with what is left.
func (c *claims) attempt(ctx context.Context, h disk.Handle, f plan.ClaimFacts) (time.Duration, error) {
	outcome, err := c.provision(ctx, h, &f)
	if full := new(capacity.FullError); errors.As(err, &full) {
		c.inFlight.abandon(string(f.Claim.UID)) // nothing was made
		f.Room = full.Room
		return c.refuse(ctx, f, c.recount(ctx, &f, plan.ForClaim(f)))
	}
	c.reportClaim(f.Claim, outcome, f.Pool.Name)
	return outcome.After, err
}

// provision makes a claim's volume and its object. The outcome says what to report, and when to
// look at the claim again; the facts say which pool the volume was put into.
func (c *claims) provision(ctx context.Context, h disk.Handle, f *plan.ClaimFacts) (plan.Verdict, error) {
	if len(f.Disks) > 1 {
		c.placing.Lock()
		chosen, drop, err := c.reserve(ctx, f)
		c.placing.Unlock()
		defer drop()
		if h = chosen; err != nil {
			c.copies.cancel(string(f.Claim.UID))
			return c.notMade(ctx, *f, err)
		}
	}
	pv, err := c.make(ctx, h, *f)
	if err != nil {
		return c.notMade(ctx, *f, err)
	}
	if pv == nil {
		return plan.Verdict{}, nil // its copy goes on
	}
	// A crash here leaves a directory without a volume object: the next start publishes it if the
	// claim still wants it, and otherwise removes it by its record.
	for _, holds := range []func(context.Context, plan.ClaimFacts) (bool, error){c.unchanged, c.ofClass} {
		if yes, err := holds(ctx, *f); err != nil || !yes {
			return plan.Verdict{After: lag}, err
		}
	}
	if plan.IsCopy(f.Claim) { // from here on its data may be a pod's
		if err := h.Published(pv.Name); err != nil {
			return plan.Verdict{}, err
		}
	}
	return c.publish(ctx, *f, pv)
}

// make makes a claim's directory, and returns the object for it; nil as long as it is copied.
func (c *claims) make(
	ctx context.Context, h disk.Handle, f plan.ClaimFacts,
) (pv *corev1.PersistentVolume, err error) {
	name, err := f.Pool.Directory(plan.VolumeName(f.Claim), f.Claim.Namespace, f.Claim.Name)
	if err != nil {
		return nil, err // plan's badName refused this before
	}
	w, item := c.workers[f.Pool.Name], claimItem(f.Claim)
	pv = plan.NewVolume(f, name)
	// The gate was open when the facts were gathered. Create opens the pool anew and compares it
	// with the directory that was checked, so that a mount that changed since is noticed before any
	// write. Noted before, because a call that was left alone in a hung pool may still make it.
	c.inFlight.made(item.uid, w.Name)
	made := spec(f, pv, name)
	if plan.IsCopy(f.Claim) {
		whole, err := c.copies.copied(ctx, w, item.uid, made, func() { w.claims.Add(item) })
		if err != nil || !whole {
			return nil, err
		}
	}
	err = c.create(ctx, w, h, f, made)
	if errors.Is(err, volume.ErrConflict) {
		pv, err = c.createRecorded(ctx, w, h, f, err)
	}
	if err != nil { // a copy that was whole is not there any more, or it is one of another source
		c.copies.cancel(item.uid)
	}
	return pv, err
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

// notMade is the outcome for a claim whose directory was not made. What is left of a copy is in the
// trash, and is made anew once it is gone from there. A pool that moved is looked at before anything
// is said; its gate then says why.
func (c *claims) notMade(ctx context.Context, f plan.ClaimFacts, err error) (plan.Verdict, error) {
	w, v := c.workers[f.Pool.Name], plan.Verdict{}
	if plan.IsCopy(f.Claim) {
		w.purges.Add(item{name: plan.VolumeName(f.Claim)})
		if errors.Is(err, volume.ErrPlace) || errors.Is(err, context.Canceled) {
			return plan.Verdict{After: lag}, nil // an earlier try is still there
		}
	}
	switch {
	case errors.As(err, new(*capacity.FullError)):
		return v, err
	case errors.Is(err, leadership.ErrNotLeading):
		c.Log.Info("leaves a claim whose volume was removed meanwhile", "claim", f.Claim.Namespace+"/"+f.Claim.Name, "pool", w.Name)
		return plan.Verdict{After: lag}, nil // the watch brings what became of it
	}
	wake.Signal(w.kick)
	if ctx.Err() != nil || errors.Is(err, volume.ErrDirectoryReplaced) {
		return v, err
	}
	v = plan.Verdict{Action: plan.Wait, Reason: plan.ReasonProvisioningFailed,
		Message: "node " + f.Node + ": " + err.Error()}
	switch {
	case errors.Is(err, volume.ErrNoQuota):
		v.Reason = plan.ReasonNoQuota
	case errors.Is(err, volume.ErrSource):
		v.Reason = plan.ReasonSource
	case errors.Is(err, treecopy.ErrNoReflink):
		v.Reason = plan.ReasonDataSource
	}
	if plan.IsCopy(f.Claim) && writesAgain(err) {
		v.After, err = copyAgain, nil
	}
	return v, err
}

// publish creates the object for a directory that was made.
func (c *claims) publish(
	ctx context.Context, f plan.ClaimFacts, pv *corev1.PersistentVolume,
) (plan.Verdict, error) {
	uid := string(f.Claim.UID)
	existing, err := c.API.CreateVolume(ctx, pv)
	if err != nil {
		return plan.Verdict{}, err
	}
	if existing != nil && plan.MadeElsewhere(existing, pv) {
		c.Log.Info("another node made the claim's volume",
			"claim", f.Claim.Namespace+"/"+f.Claim.Name, "volume", pv.Name)
		c.abandon(uid)
		return plan.Verdict{After: time.Minute}, nil
	}
	took := c.inFlight.published(uid)
	if existing != nil {
		// An object of our name that this node would not make may be for the same claim, of a node
		// that has the same filesystem mounted, so that the directory may be in a pod: what was
		// made here stays for as long as the object does, and then goes by its record.
		if difference := plan.Same(existing, pv); difference != "" {
			return plan.Verdict{Action: plan.Refuse, Reason: plan.ReasonNameTaken, After: nameTakenAgain,
				Message: "a volume " + pv.Name + " exists already and is not this node's: " + difference}, nil
		}
	}
	c.Metrics.Claim(f.Pool.Name, plan.ReasonProvisioningSucceeded, took)
	c.pods.waiting.Drop(f.Claim.Namespace, uid)
	c.pods.end(uid)
	return plan.Verdict{Action: plan.Provision, Reason: plan.ReasonProvisioningSucceeded,
		Message: "volume " + pv.Name + " is " + whereOf(f) + c.copies.takeNotes(f),
		After:   c.inFlight.awaited(uid)}, nil // it is looked at once more whether the object is there
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
