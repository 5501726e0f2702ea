package controllers

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/treecopy"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// claim looks at one claim: gather, decide, act, publish, say.
func (c *claims) claim(ctx context.Context, w *poolWorker, i item) (after time.Duration, err error) {
	defer func() { c.noteClaim(i, err) }()
	claim, wanted := c.Listers.Claims.Get(i.namespace + "/" + i.name)
	if !wanted || string(claim.UID) != i.uid || plan.Unasked(claim) {
		c.dropClaim(i)
		return 0, nil
	}
	if home := c.workers[c.poolNameOf(claim)]; home != w {
		// Its class became known, or changed, while it waited: it never has two workers at once.
		home.claims.Add(i)
		return 0, nil
	}
	if plan.Growing(claim) {
		return c.expand(ctx, w, claim)
	}
	if plan.Restyled(claim) {
		return c.restyled(w, claim), nil
	}
	facts, h, verdict, err := c.decide(ctx, claim)
	if err != nil {
		return 0, err
	}
	if chosen := plan.Chosen(claim); chosen != "" && chosen != c.Node {
		c.abandon(i.uid)
	}
	switch verdict.Action {
	case plan.Assign:
		return c.take(ctx, facts)
	case plan.Remind:
		return verdict.After, c.remind(ctx, facts, verdict)
	case plan.Provision:
		if wait := c.inFlight.awaited(i.uid); wait > 0 {
			return wait, nil // it was published, and the watch of volumes has not brought it yet
		}
		if may, err := c.cluster.mayProvision(ctx, claim); err != nil || !may {
			return 0, err
		}
		if may, after, err := c.mayMake(ctx, facts); err != nil || !may {
			return after, err
		}
		return c.provision(ctx, h, facts)
	case plan.Wait:
		if wait := w.outage.unexplained(time.Now()); wait > 0 && verdict.Reason == plan.ReasonPoolClosed {
			return wait, nil
		}
	}
	return c.refuse(ctx, facts, verdict)
}

// lookAgainAfter returns when to look again at the claim or volume with this UID, about which a
// verdict was reported: sooner than the verdict asks for if its message is held.
func (c *frame) lookAgainAfter(uid string, v plan.Verdict) time.Duration {
	if held := c.said.Held(uid); held > 0 && v.Reason != "" && (v.After == 0 || held < v.After) {
		return held
	}
	return v.After
}

// decide gathers what a decision depends on, and asks for it: once more where the first verdict
// depends on what has to be asked of the API server.
func (c *claims) decide(ctx context.Context, claim *corev1.PersistentVolumeClaim) (plan.ClaimFacts, disk.Handle, plan.Verdict, error) {
	facts, h, err := c.gather(ctx, claim)
	if err != nil {
		return facts, h, plan.Verdict{}, err
	}
	if plan.Contended(facts) {
		facts.Taken, facts.Lag = c.stagger.lately(time.Now())
		facts.Backlog = c.inFlight.backlog(string(claim.UID), func() time.Duration { return c.stagger.arrive(time.Now(), plan.AssignInterval(facts.Nodes)) })
	}
	verdict := plan.ForClaim(facts)
	if verdict.Action == plan.Inquire {
		var err error
		if facts.Inquiry, err = c.inquire(ctx, claim); err != nil {
			return facts, h, verdict, err
		}
		verdict = plan.ForClaim(facts)
	}
	if name := plan.ClassName(claim); verdict.Reason == plan.ReasonClassNotFound && plan.NodeNamePossible(name) {
		var err error
		if facts.ClassOf, err = c.cluster.classOf(ctx, name); err != nil {
			return facts, h, verdict, err
		}
		if c.Serves(facts.ClassOf) {
			return facts, h, plan.Verdict{Action: plan.Wait, After: lag}, nil // the watch of classes has not brought it yet
		}
		verdict = plan.ForClaim(facts)
	}
	verdict = c.recount(ctx, &facts, verdict)
	return facts, h, verdict, nil
}

// recount counts the nodes before a claim is refused, given back, or kept waiting here: another
// node may have joined or gone meanwhile.
func (c *claims) recount(ctx context.Context, f *plan.ClaimFacts, v plan.Verdict) plan.Verdict {
	if v.Reason == "" {
		return v
	}
	age := time.Minute
	if f.Nodes < 2 {
		age = 2 * time.Second
	}
	nodes := c.cluster.nodeCount(ctx, age)
	if nodes == f.Nodes {
		return v
	}
	f.Nodes = nodes
	return plan.ForClaim(*f)
}

// nodesFor is how many nodes the cluster has, as far as that matters for a claim: for one that was
// given to this node only before it is refused. So a node that provisions what the scheduler gives
// it does not count them.
func (c *claims) nodesFor(ctx context.Context, claim *corev1.PersistentVolumeClaim) int {
	if known := c.cluster.nodes.last(); (known > 1 || plan.OnlySelected(claim)) && plan.Chosen(claim) == c.Node {
		return known
	}
	return c.cluster.nodeCount(ctx, time.Minute)
}

// claimFacts returns the handle that the facts of the claim's pool are of, too: it is provisioned
// there or nowhere.
func (c *claims) claimFacts(ctx context.Context, claim *corev1.PersistentVolumeClaim) (f plan.ClaimFacts, h disk.Handle) {
	f = plan.ClaimFacts{
		RequestFacts: plan.RequestFacts{Self: c.Self}, Claim: claim,
		Age: c.inFlight.chosen(string(claim.UID), plan.Chosen(claim)),
	}
	if node, known := c.Listers.Nodes.Get(c.Node); known {
		f.NodeLabels = node.Labels
	}
	f.Volume, _ = c.Listers.Volumes.Get(plan.VolumeName(claim))
	class, known := c.Listers.Classes.Get(plan.ClassName(claim))
	if !known {
		return f, h
	}
	f.Class = class
	pools, refusal := c.Candidates(plan.ClassFor(claim, class), c.configured)
	if f.Refusal = refusal; refusal == nil {
		h = c.place(ctx, &f, pools)
	}
	return f, h
}

// dropClaim ends the work on a claim that is bound, deleted or given to another node. A directory
// that was made for it and never published is looked at with the pool's records.
func (c *claims) dropClaim(i item) {
	c.said.Forget(i.uid)
	c.pods.end(i.uid)
	c.expander.Forget(i.uid)
	c.copies.cancel(i.uid)
	if pool := c.inFlight.forget(i.uid); pool != "" {
		signal(c.workers[pool].recheck)
	}
}

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

// reportClaim tells a verdict once, in the same words, to the claim, the log and the metric. It is
// left out, which is false, if there was too much to say of the namespace.
func (c *frame) reportClaim(claim *corev1.PersistentVolumeClaim, v plan.Verdict, pool string) bool {
	if v.Reason == "" || !c.said.New(string(claim.UID), v.Reason+" "+v.Message) {
		return true
	}
	if v.Action != plan.Provision && !c.mayWarn(claim.Namespace) {
		c.said.Retract(string(claim.UID))
		return false
	}
	kind := corev1.EventTypeWarning
	switch {
	case v.Action == plan.Provision:
		kind = corev1.EventTypeNormal
		c.Log.Info(v.Message, "reason", v.Reason, "claim", claim.Namespace+"/"+claim.Name, "volume", plan.VolumeName(claim), "pool", pool)
	case v.Reason == plan.ReasonPopulator: // another controller's work, and nothing is wrong
		kind = corev1.EventTypeNormal
		c.Log.Info(v.Message, "reason", v.Reason, "claim", claim.Namespace+"/"+claim.Name)
	default:
		c.Metrics.Claim(pool, v.Reason, 0)
		c.Log.Warn(v.Message, "reason", v.Reason, "claim", claim.Namespace+"/"+claim.Name, "pool", pool)
	}
	c.Events.Event(report.Claim(claim), kind, v.Reason, v.Message)
	return true
}

// mayWarn reports whether a warning about an object of a namespace may be written now, and logs
// that some are not.
func (c *frame) mayWarn(namespace string) bool {
	allowed, logIt := c.limiter.Allow(namespace, time.Now())
	if logIt {
		c.Log.Warn("there is too much to say about claims of one namespace: some of it is said later", "namespace", namespace)
	}
	return allowed
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
