package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/ownership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/podclaims"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
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
	// BoundNode is the Node that the token is bound to, "" for none, and Holder the other host that
	// works under the node's name, "" if none does.
	BoundNode, Holder func() string
	Pools             []PoolParts
	Listers           Listers
	API               API
	Events            report.Events
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
	c.pods = &together{claims: c.claims, finder: podclaims.NewFinder(o.API)}
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
		w.disk = disk.New(disk.Options{
			Name: w.Name, Gate: o.Gate, Storage: w.Storage, Label: w.Label,
			Look: func() { wake.Signal(w.kick) }, Slow: o.Deadline / 4,
			Account: w.Account, Overcommit: w.Overcommit,
			Recount: func() { wake.Signal(w.recheck) },
		})
		f.workers[p.Name] = w
		w.owner, w.everyNode = c.newOwner(w), c.newDirectory(w)
		if p.Scope == plan.ScopeShared {
			w.elector = c.newElector(w)
		}
	}
	return c
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
			startWork(ctx, &all, contentWorkers, c.contents,
				func(i item) (time.Duration, error) { return c.content(ctx, i) })
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
	c.End()
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
	startWork(ctx, all, c.Workers, w.claims, w.claimed.tracked(
		func(i item) (time.Duration, error) { return c.claim(ctx, w, i) }))
	startWork(ctx, all, removers, w.volumes, w.looked.tracked(
		func(i item) (time.Duration, error) { return c.volume(ctx, w, i.name) }))
	if w.Name == "" {
		return
	}
	startWork(ctx, all, 1, w.purges,
		func(i item) (time.Duration, error) { return c.purge(ctx, w, i.name) })
	all.Go(func() { c.volumes.keepRecords(ctx, w) })
	if w.Quota == plan.QuotaProject {
		all.Go(func() { c.pools.measure(ctx, w) })
	}
	if w.elector != nil {
		all.Go(func() { w.elector.Run(ctx) })
	}
}

// Identify asks the API server which cluster it serves, and has each pool checked with that
// knowledge. It reports whether both was done before ctx ended. No work may be done before.
func (c *Controller) Identify(ctx context.Context) bool {
	if !c.identity.Identify(ctx) {
		return false
	}
	c.Look()
	for name, w := range c.workers {
		if name != "" && !w.owner.AwaitChecked(ctx) {
			return false
		}
	}
	return true
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
			wake.Signal(w.recheck)
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
		wake.Signal(w.recheck)
	}
}

// longestTask is what one item may take beside the pool's disk, which is given up at a deadline:
// four requests, one after the other, to an API server that does not respond (30 s each,
// callTimeout in package kube).
const longestTask = 2 * time.Minute

// Ping sends an item through each queue of claims and of volumes, so that one without work makes
// progress, too. Purges are left out: to empty one directory may take hours.
func (c *Controller) Ping() {
	for _, w := range c.workers {
		w.claims.Add(item{})
		w.volumes.Add(item{})
	}
}

// Alive returns an error that names what makes no progress, nil if everything does. The loop of a
// pool may take timeout, a poll and the disk's deadline. Workers may take the time of their
// requests besides: an API server that does not respond is no reason for a restart.
func (c *Controller) Alive(now time.Time, timeout time.Duration) error {
	loop := timeout + c.Tick + c.Deadline
	for name, w := range c.workers {
		for _, part := range []struct {
			what  string
			at    *progress
			limit time.Duration
		}{{"loop", &w.turned, loop}, {"claim workers", &w.claimed, loop + longestTask}, {"volume workers", &w.looked, loop + longestTask}} {
			last := part.at.Load()
			if lasted := now.Sub(time.Unix(0, last)); last != 0 && lasted > part.limit {
				return fmt.Errorf("pool %q: no progress of its %s for %s", name, part.what, lasted.Round(time.Second))
			}
		}
	}
	return nil
}
