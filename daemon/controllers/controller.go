package controllers

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/begun"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/everynode"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/expansion"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/ownership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/podclaims"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// PoolParts is one pool as the controllers use it.
type PoolParts struct {
	plan.Pool
	Storage disk.Storage
	// Account is what the pool has promised, also by earlier configurations; nil is a new one.
	// Overcommit is how many times its filesystem may be promised, 0 is once.
	Account    *capacity.Account
	Overcommit float64
	Label      string // the SELinux label of new volumes, "" where there is no SELinux
	Probe      Prober
	// Figures are what its volumes take by their directories, also of earlier configurations; nil
	// is none yet.
	Figures *usage.Figures
	// Opened is called, from the pool's own goroutine, each time the pool opens with the marker
	// that was found there, before any work is done in it.
	Opened func(marker hostcheck.Marker) error
}

// Options are the controllers'. All fields are needed.
type Options struct {
	plan.Self
	Identity string // of this daemon as the holder of leases: one for the host's time since it started
	Host     ownership.Host
	// BoundNode is the Node that the token is bound to, "" for none. It may be nil.
	BoundNode func() string
	// Holder returns which other host works under the node's name, "" if none does. It may be nil.
	Holder  func() string
	Pools   []PoolParts
	Listers Listers
	API     API
	Events  Events
	// Published may be nil: no claim is told that it fits on no node then.
	Published Published
	// AllHeld reports whether Listers.Claims has all claims of a namespace that have no node. It
	// may be nil: it has.
	AllHeld func(namespace string) bool
	// Contents and Snapshots are nil where no pool takes snapshots.
	Contents  WatchedLister[*snapshotapi.Content]
	Snapshots Snapshots
	// Inline finds out which inline volumes pods have.
	Inline InlineHost
	// Pauser is nil where no pool's pods are paused.
	Pauser  Pauser
	Metrics Metrics
	Gate    *gate.Gate
	Mounts  <-chan struct{} // something changed in the mount table
	Log     *slog.Logger
	// Tick is how often each pool is looked at without a mount event; Deadline is how long it may
	// take to respond. Both must be positive.
	Tick, Deadline time.Duration
	// Workers is how many claims of one pool are worked on at once.
	Workers int
	// Measure: the directories of volumes without quotas are read for what they take.
	Measure bool
}

// Controller runs the loops. It is the frame and the five reconcilers that stand on it, whose
// exported methods are its own: feed it through ClaimChanged, VolumeChanged and the like.
type Controller struct {
	*frame
	*claims
	*volumes
	*copies
	*pools
	*cluster
}

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

// claims gets claims their volumes: it takes and gives back claims, chooses pools, makes
// directories and objects, and makes volumes larger.
type claims struct {
	*frame
	copies  *copies
	cluster *cluster

	inFlight
	stagger  stagger
	pods     together
	podNews  chan struct{} // a pod that names this node, or a claim without one, came or changed
	placing  sync.Mutex    // held while pools are chosen, and promise volumes their size
	expander *expansion.Expander
}

// volumes removes and keeps what was made: it looks at volume objects, at the trash, and at the
// records of each pool. It also has the inline volumes, which have no object.
type volumes struct {
	*frame
	claims  *claims
	copies  *copies
	pools   *pools
	cluster *cluster
}

// copies makes clones, snapshots and restores, and has snapshots go.
type copies struct {
	*frame
	claims  *claims
	pools   *pools
	cluster *cluster

	running
	contents queue // nil without Options.Contents
	sources  sources
}

// pools looks at the pools and what they have: whether they take work, whose they are, which daemon
// works in a shared one, what their volumes take.
type pools struct {
	*frame
	copies  *copies
	cluster *cluster
}

// cluster is what is known of the cluster, and what one daemon does for all: it counts nodes, reads
// classes and volumes that no watch brings, and tells claims that they fit on no node.
type cluster struct {
	*frame
	pools *pools

	nodes    nodeCount
	classes  classOwners
	driver   driver
	kept     *keptVolumes
	unplaced chan struct{} // a claim that has no node came or changed
}

// poolWorker has one pool's queues and what is known of the pool. That of "" takes what belongs to
// no configured pool.
type poolWorker struct {
	PoolParts
	claims    queue
	volumes   queue
	purges    queue
	disk      *disk.Pool
	owner     *ownership.Pool
	everyNode *everynode.Directory
	elector   *leadership.Elector // nil for a pool that is this node's alone
	copying   turns               // of the copies of volumes
	kick      chan struct{}       // look at the pool now
	recheck   chan struct{}       // go through its records
	sweep     chan struct{}       // remove the inline volumes that no pod has
	inline    sync.Mutex          // held while one is made, or taken out of the pool
	outage    outage
	promised  promised
	tally     tally
	takes     atomic.Pointer[usage.Pool] // as last measured; nil: not known
	// Used by the pool's loop alone: what the log and the node were told last, and how often it
	// changed since.
	reported gate.State
	last     gate.State // as it was told, at the look before
	changes  report.Changes
	// When the pool's loop last turned, and a worker of each queue was last done with an item.
	turned, claimed, looked progress
}

// item is a unit of work: a claim by namespace, name and UID, or a volume by name.
type item struct{ namespace, name, uid string }

type queue = workqueue.TypedRateLimitingInterface[item]

// New makes the controllers; nothing runs before Run.
func New(o Options) *Controller {
	f := &frame{Options: o, workers: map[string]*poolWorker{}}
	f.refusals, f.identity = f.newRefusals(), f.newIdentity()
	c := &Controller{f, &claims{frame: f, podNews: make(chan struct{}, 1)}, &volumes{frame: f},
		&copies{frame: f}, &pools{frame: f}, &cluster{frame: f, nodes: nodeCount{number: 2},
			kept: newKeptVolumes(), unplaced: make(chan struct{}, 1)}}
	c.claims.copies, c.claims.cluster = c.copies, c.cluster
	c.volumes.claims, c.volumes.copies = c.claims, c.copies
	c.volumes.pools, c.volumes.cluster = c.pools, c.cluster
	c.copies.claims, c.copies.pools, c.copies.cluster = c.claims, c.pools, c.cluster
	c.pools.copies, c.pools.cluster = c.copies, c.cluster
	c.cluster.pools = c.pools
	if o.Contents != nil {
		c.contents = newQueue()
	}
	c.pods.finder = podclaims.NewFinder(o.API)
	c.expander = c.newExpander()
	for _, p := range o.Pools {
		f.configured = append(f.configured, p.Pool)
	}
	for _, p := range append([]PoolParts{{}}, o.Pools...) {
		if p.Figures == nil {
			p.Figures = new(usage.Figures)
		}
		w := &poolWorker{
			PoolParts: p, claims: newQueue(), volumes: newQueue(), purges: newQueue(),
			kick: make(chan struct{}, 1), recheck: make(chan struct{}, 1), sweep: make(chan struct{}, 1),
		}
		w.disk = openDisk(o, w)
		f.workers[p.Name] = w
		w.owner, w.everyNode = c.newOwner(w), c.newDirectory(w)
		if p.Scope == plan.ScopeShared {
			w.elector = c.newElector(w)
		}
	}
	return c
}

func openDisk(o Options, w *poolWorker) *disk.Pool {
	return disk.New(disk.Options{
		Name: w.Name, Gate: o.Gate, Storage: w.Storage, Label: w.Label,
		Look: func() { signal(w.kick) }, Slow: o.Deadline / 4,
		Account: w.Account, Overcommit: w.Overcommit, Recount: func() { signal(w.recheck) },
	})
}

func newQueue() queue {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[item](100*time.Millisecond, 30*time.Second))
}

// grace is how long Run waits for work under way when its context ends. A worker that hangs in the
// kernel is left behind: every step can be repeated by the next process.
const grace = 3 * time.Second

// Run works until ctx ends. checked is closed when every pool was looked at once; work on volumes
// and claims begins when started is closed, that is when the watches are complete.
func (c *Controller) Run(ctx context.Context, checked chan<- struct{}, started <-chan struct{}) {
	var all, first sync.WaitGroup
	for name, w := range c.workers {
		if name == "" {
			continue
		}
		first.Add(1)
		all.Go(func() { c.pools.watchPool(ctx, w, first.Done) })
		if w.OfOneNode() {
			all.Go(func() { c.volumes.keepInline(ctx, w) })
		}
	}
	go func() { first.Wait(); close(checked) }()
	all.Go(func() { c.pools.fanOut(ctx) })
	select {
	case <-started:
		for _, w := range c.workers {
			c.startWorkers(ctx, w, &all)
		}
		if c.Contents != nil {
			for range contentWorkers {
				all.Go(func() {
					work(ctx, c.copies.contents, func(i item) (time.Duration, error) { return c.copies.content(ctx, i) })
				})
			}
		}
		all.Go(func() { c.claims.pods.finder.Run(ctx) })
		if c.Measure {
			all.Go(func() { c.pools.measureDirectories(ctx) })
		}
		if c.Listers.Pods != nil {
			all.Go(func() { c.claims.placePods(ctx) })
		}
		if c.Published != nil {
			all.Go(func() { c.cluster.explain(ctx) })
		}
		<-ctx.Done()
	case <-ctx.Done():
	}
	if c.copies.contents != nil {
		c.copies.contents.ShutDown()
	}
	for _, w := range c.workers {
		w.claims.ShutDown()
		w.volumes.ShutDown()
		w.purges.ShutDown()
	}
	waitFor(&all, grace)
	c.claims.pods.endAll()
	c.volumes.finishLetGo(ctx)
	for _, w := range c.workers {
		w.elector.Resign()
	}
}

// removers is how many volumes of a pool are taken away at once, up to the purge: they wait for the
// API.
const removers = 16

func (c *Controller) startWorkers(ctx context.Context, w *poolWorker, all *sync.WaitGroup) {
	for range c.Workers {
		all.Go(func() {
			work(ctx, w.claims, w.claimed.tracked(func(i item) (time.Duration, error) { return c.claims.claim(ctx, w, i) }))
		})
	}
	for range removers {
		all.Go(func() {
			work(ctx, w.volumes, w.looked.tracked(func(i item) (time.Duration, error) { return c.volumes.volume(ctx, w, i.name) }))
		})
	}
	if w.Name == "" {
		return
	}
	all.Go(func() {
		work(ctx, w.purges, func(i item) (time.Duration, error) { return c.volumes.purge(ctx, w, i.name) })
	})
	all.Go(func() { c.volumes.keepRecords(ctx, w) })
	if w.Quota == plan.QuotaProject {
		all.Go(func() { c.pools.measure(ctx, w) })
	}
	if w.elector != nil {
		all.Go(func() { w.elector.Run(ctx) })
	}
}

// work takes items until the queue shuts down.
func work(ctx context.Context, q queue, do func(item) (time.Duration, error)) {
	for takeOne(ctx, q, do) {
	}
}

// takeOne waits for an item and does it, false if the queue shuts down or ctx has ended. An error
// means later, with a growing delay; a duration means at that time.
func takeOne(ctx context.Context, q queue, do func(item) (time.Duration, error)) bool {
	i, down := q.Get()
	if down || ctx.Err() != nil {
		return false
	}
	after, err := do(i)
	switch {
	case err != nil:
		q.AddRateLimited(i)
	case after > 0:
		q.Forget(i)
		q.AddAfter(i, after)
	default:
		q.Forget(i)
	}
	q.Done(i)
	return true
}

// ClaimChanged is called with each kept claim that came, changed or went (now is nil).
func (c *claims) ClaimChanged(was, now *corev1.PersistentVolumeClaim) {
	c.noteWaiting(was, now)
	if now != nil && plan.NodeOpen(now) {
		signal(c.podNews)
	}
	if now != nil && plan.Unasked(now) && (was == nil || plan.Unasked(was)) {
		signal(c.cluster.unplaced)
		return // unplaced.go has it
	}
	if now != nil {
		c.inFlight.seen(string(now.UID))
		c.workers[c.poolNameOf(now)].claims.Add(claimItem(now))
		return
	}
	// Bound, deleted, or given to another node: what was begun for it is finished or undone.
	c.workers[c.poolNameOf(was)].claims.Add(claimItem(was))
}

// givenUpAfter is how long after an adopted volume's object its record may go.
const givenUpAfter = 5 * time.Second

// VolumeChanged is called with each volume of this node that came, changed or went (now is nil).
func (c *volumes) VolumeChanged(was, now *corev1.PersistentVolume) {
	v := now
	if now != nil {
		c.claims.requeueGrowing(now)
		c.staysAfterAll(was, now)
		c.notAsRecorded(was, now)
	}
	if now == nil {
		c.said.Forget(string(was.UID))
		if w := c.workers[was.Labels[plan.PoolLabel]]; w != nil {
			if slices.Contains(was.Finalizers, plan.Finalizer) {
				signal(w.recheck) // it did not go by our hand: its record says what is left
			}
			if plan.Adopted(was) { // when it is given up, its record goes last
				time.AfterFunc(givenUpAfter, func() { signal(w.recheck) })
			}
		}
		c.workerOf(was).everyNode.Forget(was)
		v = was
	}
	if w := c.workers[v.Labels[plan.PoolLabel]]; w != nil && was != nil && now != nil &&
		was.Annotations[plan.SizeAnnotation] != now.Annotations[plan.SizeAnnotation] {
		signal(w.recheck) // adopt noted another size
	}
	if w := c.workers[v.Labels[plan.PoolLabel]]; w != nil && was == nil && plan.Older(v) {
		if plan.Adopted(v) {
			// another process recorded it: counted before the next volume is made
			w.Account.Forget()
		}
		signal(w.recheck) // a restored server may have it back, or people made it for an orphaned directory
	}
	stays := was != nil && now != nil && plan.NeedsWork(was) && now.DeletionTimestamp == nil // what was begun may have to be undone
	// One that has a directory on each node concerns this one as long as it is there, and when it
	// goes.
	looks := now == nil && keeps(was) || now != nil && needsLook(now)
	if !plan.OnEveryNode(v) && !looks && !stays {
		return
	}
	c.workerOf(v).volumes.Add(item{name: v.Name})
}

// needsLook reports whether a volume needs work, or something is to be said of it.
func needsLook(v *corev1.PersistentVolume) bool {
	return plan.NeedsWork(v) || plan.Unattributed(v) || plan.MisHeld(v)
}

// keeps reports whether the record of a volume whose object went is to learn that it is retained.
func keeps(v *corev1.PersistentVolume) bool {
	return v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete
}

// workerOf is the worker of a volume's pool, and that of "" if the pool is not configured any more.
func (c *frame) workerOf(v *corev1.PersistentVolume) *poolWorker {
	if w := c.workers[v.Labels[plan.PoolLabel]]; w != nil {
		return w
	}
	return c.workers[""]
}

// NodeChanged looks again at every claim when this node appears or its labels change, and at every
// pool when it appears or goes.
func (c *Controller) NodeChanged(was, now *corev1.Node) {
	if was == nil || now == nil || ownership.HostOf(was) != ownership.HostOf(now) {
		c.Look()
	}
	if was == nil || now == nil || was.Labels[plan.HostnameLabel] != now.Labels[plan.HostnameLabel] {
		c.requeueClaims("")
		for _, w := range c.workers {
			signal(w.recheck)
		}
	}
}

// APIRecovered is called when the API server responds again. What failed meanwhile does not wait
// for its pause to end, which has grown to half a minute after an hour.
func (c *Controller) APIRecovered() {
	c.requeueClaims("")
	c.copies.requeueContents()
	for _, w := range c.workers {
		c.requeueVolumes(w)
		signal(w.recheck)
	}
}

func (c *frame) requeueClaims(pool string) {
	for _, claim := range c.Listers.Claims.List() {
		pools := c.poolsOf(claim)
		if (pool == "" || slices.Contains(pools, pool)) && !plan.Unasked(claim) {
			c.workers[pools[0]].claims.Add(claimItem(claim))
		}
	}
}

// requeueVolumes looks again at the volumes of a pool that wait to be removed, and at those that
// should have a directory on each node.
func (c *frame) requeueVolumes(w *poolWorker) {
	for _, v := range c.Listers.Volumes.List() {
		if v.Labels[plan.PoolLabel] == w.Name && (needsLook(v) || plan.OnEveryNode(v)) {
			w.volumes.Add(item{name: v.Name})
		}
	}
}

func claimItem(c *corev1.PersistentVolumeClaim) item {
	return item{namespace: c.Namespace, name: c.Name, uid: string(c.UID)}
}

func waitFor(all *sync.WaitGroup, limit time.Duration) {
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(limit):
	}
}
