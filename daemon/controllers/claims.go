package controllers

import (
	"cmp"
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/expansion"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

// claims gets claims their volumes: it takes and gives back claims, chooses pools, makes
// directories and objects, and makes volumes larger.
type claims struct {
	*frame
	copies  *copies
	cluster *cluster

	inFlight
	stagger  stagger
	pods     *together
	podNews  chan struct{} // a pod that names this node, or a claim without one, came or changed
	placing  sync.Mutex    // held while pools are chosen, and promise volumes their size
	expander *expansion.Expander
}

// ClaimChanged is called with each kept claim that came, changed or went (now is nil).
func (c *claims) ClaimChanged(was, now *corev1.PersistentVolumeClaim) {
	c.pods.noteWaiting(was, now)
	if now != nil && plan.NodeOpen(now) {
		wake.Signal(c.podNews)
	}
	if now != nil && plan.Unasked(now) && (was == nil || plan.Unasked(was)) {
		c.cluster.claimCame()
		return // unplaced.go has it
	}
	if now != nil {
		c.inFlight.seen(string(now.UID))
	}
	// One that went was bound, deleted, or given to another node: what was begun for it is finished
	// or undone.
	c.requeueClaim(cmp.Or(now, was))
}

// ClassChanged looks again at every claim: a class that came or changed may be what it waits for.
func (c *claims) ClassChanged(_, _ *storagev1.StorageClass) {
	for _, claim := range c.Listers.Claims.List() {
		c.pods.noteWaiting(nil, claim)
	}
	c.requeueClaims("")
}

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
		if may, after, err := c.pods.mayMake(ctx, facts); err != nil || !may {
			return after, err
		}
		return c.attempt(ctx, h, facts)
	case plan.Wait:
		if wait := w.outage.unexplained(time.Now()); wait > 0 && verdict.Reason == plan.ReasonPoolClosed {
			return wait, nil
		}
	}
	return c.refuse(ctx, facts, verdict)
}

// decide gathers what a decision depends on, and asks for it: once more where the first verdict
// depends on what has to be asked of the API server.
func (c *claims) decide(ctx context.Context, claim *corev1.PersistentVolumeClaim) (facts plan.ClaimFacts, h disk.Handle, verdict plan.Verdict, err error) {
	if facts, h, err = c.gather(ctx, claim); err != nil {
		return facts, h, verdict, err
	}
	if plan.Contended(facts) {
		facts.Taken, facts.Lag = c.stagger.lately(time.Now())
		facts.Backlog = c.inFlight.backlog(string(claim.UID), func() time.Duration { return c.stagger.arrive(time.Now(), plan.AssignInterval(facts.Nodes)) })
	}
	if verdict = plan.ForClaim(facts); verdict.Action == plan.Inquire {
		if facts.Inquiry, err = c.inquire(ctx, claim); err != nil {
			return facts, h, verdict, err
		}
		verdict = plan.ForClaim(facts)
	}
	if name := plan.ClassName(claim); verdict.Reason == plan.ReasonClassNotFound && plan.NodeNamePossible(name) {
		if facts.ClassOf, err = c.cluster.classOf(ctx, name); err != nil {
			return facts, h, verdict, err
		}
		if c.Serves(facts.ClassOf) {
			return facts, h, plan.Verdict{Action: plan.Wait, After: lag}, nil // the watch of classes has not brought it yet
		}
		verdict = plan.ForClaim(facts)
	}
	return facts, h, c.recount(ctx, &facts, verdict), nil
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
	if nodes := c.cluster.nodeCount(ctx, age); nodes != f.Nodes {
		f.Nodes = nodes
		return plan.ForClaim(*f)
	}
	return v
}

// nodesFor is how many nodes the cluster has, as far as that matters for a claim: for one that was
// given to this node only before it is refused. So a node that provisions what the scheduler gives
// it does not count them.
func (c *claims) nodesFor(ctx context.Context, claim *corev1.PersistentVolumeClaim) int {
	if known := c.cluster.lastNodeCount(); (known > 1 || plan.OnlySelected(claim)) && plan.Chosen(claim) == c.Node {
		return known
	}
	return c.cluster.countedLately(ctx)
}

// gather gathers what the rules about a claim's request depend on. It returns the handle that the
// facts of the claim's pool are of, too: it is provisioned there or nowhere.
func (c *claims) gather(
	ctx context.Context, claim *corev1.PersistentVolumeClaim,
) (f plan.ClaimFacts, h disk.Handle, err error) {
	f = plan.ClaimFacts{
		RequestFacts: plan.RequestFacts{Self: c.Self, NodeLabels: c.nodeLabels()}, Claim: claim,
		Age: c.inFlight.chosen(string(claim.UID), plan.Chosen(claim)),
	}
	f.Volume, _ = c.Listers.Volumes.Get(plan.VolumeName(claim))
	if class, known := c.Listers.Classes.Get(plan.ClassName(claim)); known {
		var pools []plan.Pool
		f.Class = class
		if pools, f.Refusal = c.Candidates(plan.ClassFor(claim, class), c.configured); f.Refusal == nil {
			h = c.place(ctx, &f, pools)
		}
	}
	if plan.SourceMatters(f) {
		if f.From, err = c.copies.sourceFacts(ctx, f); err != nil {
			return f, h, err
		}
		if of, is := f.DiskOfSource(); is {
			h = c.place(ctx, &f, []plan.Pool{of})
		}
	}
	if f.Pool.Source == plan.SourceCSI {
		if f.Driver, err = c.cluster.lacksDriver(ctx); err != nil {
			return f, h, err
		}
	}
	f.Nodes = c.nodesFor(ctx, claim)
	return f, h, nil
}

// refuse tells why a claim has no volume, and gives it back if another node may have room.
func (c *claims) refuse(ctx context.Context, f plan.ClaimFacts, v plan.Verdict) (time.Duration, error) {
	if v.Action == plan.Release {
		return c.release(ctx, f, v)
	}
	return c.tellClaim(f.Claim, v, f.Pool.Name), nil
}

// dropClaim ends the work on a claim that is bound, deleted or given to another node. A directory
// that was made for it and never published is looked at with the pool's records.
func (c *claims) dropClaim(i item) {
	c.said.Forget(i.uid)
	c.pods.end(i.uid)
	c.expander.Forget(i.uid)
	c.copies.cancel(i.uid)
	if pool := c.inFlight.forget(i.uid); pool != "" {
		wake.Signal(c.workers[pool].recheck)
	}
}

func (c *claims) newExpander() *expansion.Expander {
	return expansion.New(expansion.Options{
		Self: c.Self, API: c.API, Watched: c.watched, CountNodes: c.cluster.countedLately,
		MayWarn: c.mayWarn, Events: c.Events, Metrics: c.Metrics, Log: c.Log,
	})
}

// expand looks at a bound claim that requests more than it has.
func (c *claims) expand(ctx context.Context, w *poolWorker, claim *corev1.PersistentVolumeClaim) (time.Duration, error) {
	return c.expander.Look(ctx, w.expansion(), claim)
}

func (w *poolWorker) expansion() expansion.Pool {
	return expansion.Pool{Pool: w.Pool, Disk: w.disk, Elector: w.elector,
		LookAt: func() { wake.Signal(w.kick) }}
}

// restyled tells a bound claim that names a VolumeAttributesClass that there is none.
func (c *claims) restyled(w *poolWorker, claim *corev1.PersistentVolumeClaim) time.Duration {
	f := plan.ExpandFacts{Self: c.Self, Claim: claim, Pool: &w.Pool,
		Silent: w.elector.Role() == leadership.Standby}
	f.Volume, _ = c.Listers.Volumes.Get(claim.Spec.VolumeName)
	return c.tellClaim(claim, plan.ForRestyled(f), w.Name)
}

// mendSizes gives records the sizes of their volume objects. What fails is tried again with
// the next comparison.
func (c *claims) mendSizes(
	ctx context.Context, w *poolWorker, h disk.Handle, records []record.Record,
) {
	if err := c.expander.Mend(ctx, h, w.expansion(), records); err != nil {
		c.warnOnce("sizes", w.Name, err, "comparing the sizes of records")
	}
}

// requeueGrowing looks again at a volume's claim if that asks for something: the watch
// brought the claim first.
func (c *claims) requeueGrowing(v *corev1.PersistentVolume) {
	ref := v.Spec.ClaimRef
	if ref == nil {
		return
	}
	if claim, kept := c.Listers.Claims.Get(ref.Namespace + "/" + ref.Name); kept && plan.Asks(claim) {
		c.requeueClaim(claim)
	}
}
