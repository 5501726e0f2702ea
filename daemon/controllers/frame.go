package controllers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/begun"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/everynode"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/ownership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

// frame is what the reconcilers share: where they are, what they read and write, the pools with
// their queues, and what is told. Each of its parts has a lock of its own, or is not changed after
// New.
type frame struct {
	Options
	workers    map[string]*poolWorker // by pool; "" takes claims whose class resolves to no pool
	configured []plan.Pool
	begun      begun.Set
	said       report.Dedup
	refusals   *report.Refusals
	limiter    report.Limiter
	identity   *ownership.Cluster // whose volumes the pools have
}

// poolWorker has one pool's queues and what is known of the pool. That of "" takes what belongs to
// no configured pool.
type poolWorker struct {
	PoolParts
	claims    queue
	volumes   queue
	purges    queue
	kick      chan struct{} // look at the pool now
	recheck   chan struct{} // go through its records
	sweep     chan struct{} // remove the inline volumes that no pod has
	disk      *disk.Pool
	owner     *ownership.Pool
	everyNode *everynode.Directory
	elector   *leadership.Elector // nil for a pool that is this node's alone
	// When the pool's loop last turned, and a worker of each queue was last done with an item.
	turned, claimed, looked progress

	// Of the reconciler of pools. The pool's loop alone uses what the log and the node were told
	// last, and how often that changed since.
	outage   outage
	promised promised
	takes    atomic.Pointer[usage.Pool] // as last measured; nil: not known
	reported gate.State
	last     gate.State // as it was told, at the look before
	changes  report.Changes

	// Of the reconciler of volumes.
	tally  tally
	inline sync.Mutex // held while an inline volume is made, or taken out of the pool

	copying turns // of the reconciler of copies
}

// progress is when a queue's workers were last done with an item, in ns since the epoch; 0 before
// they work.
type progress struct{ atomic.Int64 }

// tracked returns the task with a note of each time that it was done. The empty item is Ping's.
func (p *progress) tracked(do task) task {
	p.Store(time.Now().UnixNano())
	return func(i item) (after time.Duration, err error) {
		defer func() { p.Store(time.Now().UnixNano()) }()
		if i == (item{}) {
			return 0, nil
		}
		return do(i)
	}
}

// item is a unit of work: a claim by namespace, name and UID, or a volume by name.
type item struct{ namespace, name, uid string }

type queue = workqueue.TypedRateLimitingInterface[item]

// task does an item. An error means later, with a growing delay; a duration means at that time.
type task = func(item) (time.Duration, error)

func newQueue() queue {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[item](100*time.Millisecond, 30*time.Second))
}

// startWork starts workers of a queue.
func startWork(ctx context.Context, all *sync.WaitGroup, workers int, q queue, do task) {
	for range workers {
		all.Go(func() { work(ctx, q, do) })
	}
}

// work takes items until the queue shuts down or ctx has ended.
func work(ctx context.Context, q queue, do task) {
	for {
		i, down := q.Get()
		if down || ctx.Err() != nil {
			return
		}
		after, err := do(i)
		if err != nil {
			q.AddRateLimited(i)
		} else if q.Forget(i); after > 0 {
			q.AddAfter(i, after)
		}
		q.Done(i)
	}
}

func (c *frame) newIdentity() *ownership.Cluster {
	return ownership.NewCluster(ownership.ClusterOptions{
		API: c.API, Changed: c.Look, Log: c.Log,
		Requested: func(err error) { c.NodeRequest("the cluster's ID", err) },
		Watched:   c.watched,
	})
}

// Cluster is the cluster's ID, "" as long as it is not known.
func (c *frame) Cluster() string { return c.identity.ID() }

// beside reports whether a volume object is of a pool of this node other than this one.
func (c *frame) beside(w *poolWorker, v *corev1.PersistentVolume) bool {
	return w.OfOneNode() && slices.ContainsFunc(c.configured, func(p plan.Pool) bool {
		return p.Name != w.Name && p.OfOneNode() && c.InPool(v, p)
	})
}

// Look makes every pool's loop look at its pool now.
func (c *frame) Look() {
	for _, w := range c.workers {
		wake.Signal(w.kick)
	}
}

// workerOf is the worker of a volume's pool, and that of "" if the pool is not configured any more.
func (c *frame) workerOf(v *corev1.PersistentVolume) *poolWorker {
	if w := c.workers[v.Labels[plan.PoolLabel]]; w != nil {
		return w
	}
	return c.workers[""]
}

// requeueClaim has a claim looked at by the worker of its pool.
func (c *frame) requeueClaim(claim *corev1.PersistentVolumeClaim) {
	c.workers[c.poolNameOf(claim)].claims.Add(claimItem(claim))
}

// poolNameOf is the pool whose worker takes a claim: the first of poolsOf.
func (c *frame) poolNameOf(claim *corev1.PersistentVolumeClaim) string {
	return c.poolsOf(claim)[0]
}

// poolsOf are the pools that a claim may have its volume in: "" alone where its class resolves to
// none. Of one that has its volume it is the volume's: the class may have been changed since.
func (c *frame) poolsOf(claim *corev1.PersistentVolumeClaim) (names []string) {
	if v, known := c.Listers.Volumes.Get(claim.Spec.VolumeName); known && plan.Asks(claim) {
		return []string{c.workerOf(v).Name}
	}
	if class, known := c.Listers.Classes.Get(plan.ClassName(claim)); known {
		pools, refusal := c.Candidates(class, c.configured)
		for _, pool := range pools {
			names = append(names, pool.Name)
		}
		if refusal == nil {
			return names
		}
	}
	return []string{""}
}

func (c *frame) requeueClaims(pool string) {
	for _, claim := range c.Listers.Claims.List() {
		pools := c.poolsOf(claim)
		if (pool == "" || slices.Contains(pools, pool)) && !plan.Unasked(claim) {
			c.workers[pools[0]].claims.Add(claimItem(claim))
		}
	}
}

// watched returns a volume object as the watch brought it last.
func (c *frame) watched(name string) (*corev1.PersistentVolume, bool) {
	return c.Listers.Volumes.Get(name)
}

// nodeLabels are this node's, nil if it is not known.
func (c *frame) nodeLabels() map[string]string {
	if node, known := c.Listers.Nodes.Get(c.Node); known {
		return node.Labels
	}
	return nil
}

// volumesIn are the watched objects of a pool.
func (c *frame) volumesIn(pool string) []*corev1.PersistentVolume {
	return slices.DeleteFunc(slices.Clone(c.Listers.Volumes.List()), func(v *corev1.PersistentVolume) bool {
		return v.Labels[plan.PoolLabel] != pool
	})
}

// requeueVolumes looks again at the volumes of a pool that wait to be removed, and at those that
// should have a directory on each node.
func (c *frame) requeueVolumes(w *poolWorker) {
	for _, v := range c.volumesIn(w.Name) {
		if needsLook(v) || plan.OnEveryNode(v) {
			w.volumes.Add(item{name: v.Name})
		}
	}
}

func claimItem(c *corev1.PersistentVolumeClaim) item {
	return item{namespace: c.Namespace, name: c.Name, uid: string(c.UID)}
}

// needsLook reports whether a volume needs work, or something is to be said of it.
func needsLook(v *corev1.PersistentVolume) bool {
	return plan.NeedsWork(v) || plan.Unattributed(v) || plan.MisHeld(v)
}

// put sets a map's value, also of a map that was not made yet.
func put[V any](all *map[string]V, key string, is V) {
	if *all == nil {
		*all = map[string]V{}
	}
	(*all)[key] = is
}

// rounds makes rounds until ctx ends, the next one after the time that the one before returns, or
// when news comes, and never within the pause.
func rounds(ctx context.Context, wait, pause time.Duration, news <-chan struct{},
	round func(context.Context) time.Duration) {
	for wake.Wait(ctx, pause, nil) && wake.Wait(ctx, wait-pause, news) {
		wait = round(ctx)
	}
}

func waitFor(all *sync.WaitGroup, limit time.Duration) {
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// inTime is a context that outlives ctx by the time in which a daemon ends.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return longer, func() { stop(); cancel() }
}

// ignoreNotLeading returns nil for ErrNotLeading: to a daemon that does not work in the pool any
// more, that it may not is no failure.
func ignoreNotLeading(err error) error {
	if errors.Is(err, leadership.ErrNotLeading) {
		return nil
	}
	return err
}
