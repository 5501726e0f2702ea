package daemon

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/ownership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/presence"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/storagecapacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/inline"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/pause"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/claimfilter"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

const (
	tick     = 10 * time.Second // how often a pool is looked at without a mount event
	deadline = 5 * time.Second  // within which it has to respond
	workers  = 64               // claims of one pool at once: nearly all wait for the API server
)

// generation is the daemon under one configuration.
type generation struct {
	d          *daemon
	cfg        config.Config
	self       plan.Self
	client     *kube.Client
	gate       *gate.Gate
	controller *controllers.Controller
	publishers storagecapacity.Group
	presence   *presence.Keeper
	mounts     chan struct{}

	claims   *kube.Informer[*corev1.PersistentVolumeClaim]
	classes  *kube.Informer[*storagev1.StorageClass]
	volumes  *kube.Informer[*corev1.PersistentVolume]
	common   []*kube.Informer[*corev1.PersistentVolume] // volumes that are not one node's, by scope
	nodes    *kube.Informer[*corev1.Node]
	pods     *kube.Informer[*corev1.Pod] // that wait to start on this node
	unplaced chan struct{}               // has an item when a claim came that waits for its node
	stores   map[string]*volume.Pool     // by pool
	// contents are the VolumeSnapshotContents of the daemon's driver, nil where no pool takes
	// snapshots.
	contents *kube.Informer[*snapshotapi.Content]
	filter   *claimfilter.Filter                   // of the claims
	indexed  chan struct{}                         // is closed when it is known how the claims are to be read
	leases   *kube.Informer[*coordinationv1.Lease] // of shared pools; nil without one

	trouble atomic.Value // string: what is wrong with the API
	refused atomic.Bool  // the API server does not accept the credential
	// troubleSince is when that began, in ns since the epoch; 0: nothing is.
	troubleSince atomic.Int64
	started      atomic.Bool                // READY=1 was sent: every pool was checked
	ready        atomic.Bool                // the watches are complete, too, and work has begun
	differs      atomic.Pointer[difference] // why the file on disk is not what is in force
	stamp        string                     // of the files that were compared last
}

// Self is the daemon that a configuration describes, as the rules see it.
func Self(cfg config.Config) plan.Self {
	return plan.Self{
		Provisioner: cfg.Provisioner, Aliases: cfg.Aliases, InPlaceOf: cfg.CSIDrivers,
		Node: cfg.Node, AwaitRequest: !cfg.ActOnSelectedNode,
	}
}

// newGeneration connects everything and starts nothing, so that a configuration that cannot work is
// known before the one in force is given up.
func (d *daemon) newGeneration(cfg config.Config) (*generation, error) {
	self := Self(cfg)
	g := &generation{d: d, cfg: cfg, self: self, mounts: make(chan struct{}, 1),
		unplaced: make(chan struct{}, 1), indexed: make(chan struct{})}
	d.metrics.LimitVolumes(cfg.VolumeMetrics)
	g.trouble.Store("")
	if d.Kubeconfig != "" { // config warned about the configured one
		if warning := kube.KubeconfigWarning(d.Kubeconfig); warning != "" {
			d.Log.Warn(warning)
		}
	}
	var err error
	g.client, err = kube.New(kube.Options{
		Kubeconfig: cfg.Kubeconfig, Self: self, Namespace: cfg.Namespace, TokenFile: filepath.Join(d.StateDir, TokenFile),
		UserAgent: "hostpath-provisioner/" + d.Version, OnHealth: g.onTrouble, OnRefused: d.metrics.Refused,
		OnEvent:     func(about corev1.ObjectReference, err error) { g.controller.EventWritten(about, err) },
		OnEventLost: func(about corev1.ObjectReference, err error) { g.controller.EventLost(about, err) },
	})
	if err != nil {
		return nil, err
	}
	g.gate, g.stores = gate.New(g.poolNames()...), d.stores(cfg)
	g.filter = claimfilter.New(self, each(cfg.Pools, PlanPool),
		func(name string) (*storagev1.StorageClass, bool) { return g.classes.Get(name) },
		func(name string) bool { _, watched := g.allVolumes().Get(name); return watched })
	g.claims = g.client.Claims(g.filter.Keep, g.claimChanged)
	g.classes = g.client.Classes(g.classChanged)
	g.watchVolumes()
	g.nodes = g.client.OwnNode(func(was, now *corev1.Node) {
		g.controller.NodeChanged(was, now)
		signal(d.changed)
		g.publishers.Changed()
		g.presence.NodeChanged()
	})
	g.pods = g.client.PendingPods(g.filter.KeepPod, g.podChanged)
	g.publishers, g.presence = g.newPublishers(), g.newPresence()
	options := controllers.Options{
		Self: self, Identity: leadership.Identity(cfg.Node), Host: d.host, BoundNode: func() string { return g.client.Credential().Node },
		Holder: g.presence.Other,
		Pools:  d.pools(cfg, func() string { return g.controller.Cluster() }),
		Listers: controllers.Listers{Claims: g.claims, Classes: g.classes, Volumes: g.allVolumes(),
			Nodes: g.nodes, Pods: g.pods},
		AllHeld: g.allHeld,
		API:     g.client, Events: g.client, Published: g.publishers,
		Metrics: observer{d.metrics, d.changed, g.publishers}, Gate: g.gate, Mounts: g.mounts, Log: d.Log,
		Tick: tick, Deadline: deadline, Workers: workers, Measure: cfg.VolumeMetrics > 0,
	}
	if slices.ContainsFunc(cfg.Pools, config.Pool.TakesSnapshots) {
		g.contents = g.client.Contents(func(was, now *snapshotapi.Content) { g.controller.ContentChanged(was, now) })
		options.Contents, options.Snapshots = g.contents, g.client
		options.Pauser = pauser{pause.Client{Socket: pause.SocketPath(cfg.KubeletRoot, cfg.Provisioner)}}
	}
	options.Inline = inline.Host{Kubelet: cfg.KubeletRoot}
	g.controller = controllers.New(options)
	return g, nil
}

// run works until ctx ends.
func (g *generation) run(ctx context.Context) {
	g.d.metrics.Forget()
	g.d.metrics.Expect(g.poolNames())
	g.watchMounts(ctx)
	g.watchState(ctx)
	var all sync.WaitGroup
	runs := []func(context.Context){
		g.runClaims, g.classes.Run, g.volumes.Run, g.nodes.Run, g.client.RunEvents,
		g.client.RunTombstoneGC, g.runPresence, g.followKubeconfig, g.renewCredential,
		g.followClaimIndex, g.runPods,
	}
	for _, s := range g.common {
		runs = append(runs, s.Run)
	}
	if g.leases != nil {
		runs = append(runs, g.leases.Run)
	}
	if !g.self.AwaitRequest {
		runs = append(runs, g.followKept)
	}
	if g.contents != nil {
		runs = append(runs, func(ctx context.Context) { kube.RunOptional(ctx, g.contents) })
	}
	checked, started := make(chan struct{}), make(chan struct{})
	if slices.ContainsFunc(g.cfg.Pools, config.Pool.MakesInline) {
		runs = append(runs, func(ctx context.Context) { g.serveInline(ctx, checked) })
	}
	for _, run := range runs {
		all.Go(func() { run(ctx) })
	}
	all.Go(func() { g.becomeReady(ctx, checked, started) })
	all.Go(func() { g.publish(ctx, started) })
	g.controller.Run(ctx, checked, started)
	// What was said and not yet written still reaches the claims, if the API server responds.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	all.Wait()
	if err := g.client.Flush(last); err != nil {
		g.d.Log.Warn("some events were not written: " + err.Error())
	}
}

// runPresence begins when the Node is known, which may tell which host it is. Only then is it known
// whether another host has its name.
func (g *generation) runPresence(ctx context.Context) {
	if await(ctx, g.nodes.Synced()) {
		g.presence.Run(ctx)
	}
}

// runClaims begins when the classes are known: which claims are held depends on them.
func (g *generation) runClaims(ctx context.Context) {
	if await(ctx, g.classes.Synced(), g.indexed) {
		g.claims.Run(ctx)
	}
}

// followKubeconfig takes a corrected kubeconfig or token into use, without a restart and without
// reading everything again. One that leads to another API server is a reload.
func (g *generation) followKubeconfig(ctx context.Context) {
	g.client.FollowKubeconfig(ctx, func(err error) {
		switch {
		case err == nil:
			g.d.Log.Info("the credential was replaced and is in use", "file", g.cfg.Kubeconfig)
			g.publishers.Retry()
			signal(g.d.changed)
		case errors.Is(err, kube.ErrOtherServer):
			g.d.Log.Info("the kubeconfig names another API server: the configuration is read again", "file", g.cfg.Kubeconfig)
			signal(g.d.moved)
		default:
			g.d.Log.Warn("the kubeconfig was replaced by one that cannot be used, the old one stays in use: " + err.Error())
		}
	})
}

// renewCredential renews the token before it ends.
func (g *generation) renewCredential(ctx context.Context) {
	last := ""
	g.client.RunRenewal(ctx, func(token []byte) error {
		return state.WriteFileDurable(g.d.StateDir, TokenFile, token, 0o600)
	}, func(now kube.Credential, err error) {
		switch {
		case err == nil:
			g.d.Log.Info("the node's token was renewed, and ends at " + now.Expires.UTC().Format(time.RFC3339))
			last = ""
		case err.Error() != last:
			last = err.Error()
			g.d.Log.Warn("the node's token was not renewed, and ends at " + now.Expires.UTC().Format(time.RFC3339) + ": " + last)
		}
		signal(g.d.changed)
	})
}

// watchMounts passes the mount table's changes on. Without it the slow look at each pool remains.
func (g *generation) watchMounts(ctx context.Context) {
	changes, err := mounts.Watch(ctx)
	if err != nil {
		g.d.Log.Error("mount events cannot be watched, pools are checked every " + tick.String() + ": " + err.Error())
		return
	}
	go func() {
		for {
			select {
			case <-changes:
				g.d.remounted.Store(true)
				signal(g.mounts)
			case <-ctx.Done():
				return
			}
		}
	}()
}

// watchState looks at the pools at once when one is cordoned or uncordoned. Without it the slow look
// at each pool remains.
func (g *generation) watchState(ctx context.Context) {
	changes, err := state.Watch(ctx, g.d.StateDir)
	if err != nil {
		g.d.Log.Warn("the state directory cannot be watched, pools are checked every " +
			tick.String() + ": " + err.Error())
		return
	}
	go func() {
		for range changes {
			g.controller.Look()
		}
	}()
}

// becomeReady tells systemd when each pool was checked, and lets the work begin when the watches
// are complete too. An API server that is away keeps neither the boot nor a reload waiting, with
// which a corrected kubeconfig is loaded; kubelet and other daemons that need a server start the
// same way.
func (g *generation) becomeReady(ctx context.Context, checked <-chan struct{}, started chan<- struct{}) {
	if !await(ctx, checked) {
		return
	}
	g.sayReady()
	synced := []<-chan struct{}{g.classes.Synced(), g.nodes.Synced(),
		g.volumes.Synced(), g.claims.Synced(), g.presence.Known()}
	for _, s := range g.common {
		synced = append(synced, s.Synced())
	}
	if g.leases != nil {
		synced = append(synced, g.leases.Synced())
	}
	if !await(ctx, synced...) || !g.controller.Identify(ctx) {
		return
	}
	if g.filter.Early() {
		g.claims.Relist()
	}
	g.ready.Store(true)
	close(started)
	g.d.Log.Info("the watches are synced, work begins", "reason", plan.ReasonAPIAvailable)
	signal(g.d.changed)
}

// await waits for all of them, and reports whether ctx did not end first.
func await(ctx context.Context, all ...<-chan struct{}) bool {
	for _, one := range all {
		select {
		case <-one:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// sayReady tells systemd after the status file: what comes after systemctl may ask for the status.
func (g *generation) sayReady() {
	g.started.Store(true)
	g.d.keep(g, func(s Status) {
		g.d.Log.Info("ready: "+s.Sentence, "reason", plan.ReasonReady)
		g.d.systemd.Ready(s.Sentence)
	})
	signal(g.d.changed)
}

// outage is how long the API cannot be used before pauses between tries have become long. Shorter
// troubles come one after the other where every other request fails, and there the pauses are
// wanted.
const outage = 10 * time.Second

// onTrouble is told once when the API cannot be used, and with nil when it can again.
func (g *generation) onTrouble(err error) {
	isRefused := errors.Is(err, kube.ErrCredentialRefused)
	g.refused.Store(isRefused)
	if err != nil {
		text, reason := withoutQuery(err), plan.ReasonAPIUnavailable
		if isRefused {
			text, reason = text+"; run: hostpath-provisioner enroll --admin-kubeconfig FILE", plan.ReasonCredentialRefused
		}
		g.trouble.Store(words.Line(text, words.MessageMax))
		g.troubleSince.CompareAndSwap(0, time.Now().UnixNano())
		g.d.Log.Warn("the Kubernetes API is unavailable, work waits: "+text, "reason", reason)
	} else {
		g.trouble.Store("")
		g.d.Log.Info("the Kubernetes API is available", "reason", plan.ReasonAPIAvailable)
		if since := g.troubleSince.Swap(0); since != 0 && time.Since(time.Unix(0, since)) > outage {
			go g.controller.APIRecovered() // onTrouble may be called with a lock held
		}
	}
	signal(g.d.changed)
}

// withoutQuery is an error of a request without the parameters of its URL, which say nothing of why
// it failed and make a line of 250 characters.
func withoutQuery(err error) string {
	text := err.Error()
	if of := new(url.Error); errors.As(err, &of) {
		if bare, _, has := strings.Cut(of.URL, "?"); has {
			text = strings.ReplaceAll(text, of.URL, bare)
		}
	}
	return text
}

// apiUp reports whether the API was read and can be used now.
func (g *generation) apiUp() bool { return g.ready.Load() && g.trouble.Load() == "" }

func (g *generation) status() Status {
	s := Status{
		Schema: SchemaVersion, OldConfig: g.differs.Load() != nil, Stalled: g.stalled(),
		Time: time.Now(), PID: os.Getpid(), Version: g.d.Version, Node: g.cfg.Node, Provisioner: g.cfg.Provisioner,
		Ready: g.ready.Load(), API: g.trouble.Load().(string), Confined: g.d.confined,
	}
	if ends := g.client.Credential().Expires; !ends.IsZero() {
		s.CredentialExpires, s.CredentialRefused = &ends, g.refused.Load()
	}
	s.RefusedRequests, s.Refused = g.controller.Refused(refusedMost)
	_, known := g.nodes.Get(g.cfg.Node)
	s.NodeUnknown = s.Ready && !known
	counts := g.countVolumes()
	for _, p := range g.cfg.Pools {
		state := g.controller.Reported(p.Name)
		pool := poolStatus(state, p)
		pool.take(g.used(p, state.Report), g.controller.States(p.Name))
		pool.Volumes, pool.Worker = counts[pool.Name], leadership.NodeOf(g.controller.Leader(pool.Name))
		pool.promise(g.controller.Room(pool.Name))
		s.Pools = append(s.Pools, pool)
		delete(counts, p.Name)
	}
	delete(counts, "") // objects without the label: LabelsMissing tells of them
	if s.Left = counts; len(counts) == 0 {
		s.Left = nil
	}
	s.Work, s.Sentence = g.work(), sentence(s)
	if differs := g.differs.Load(); differs != nil {
		s.Config, s.Sentence = differs.message, differs.sentence()+s.Sentence
	}
	return s
}

func (g *generation) poolNames() []string { return each(g.cfg.Pools, nameOf) }

func nameOf(p config.Pool) string { return p.Name }

// NamesOf are the pools' names as records have them: "fast,slow".
func NamesOf(pools []config.Pool) string { return strings.Join(each(pools, nameOf), ",") }

func (g *generation) places() map[ownership.Place]bool {
	all := map[ownership.Place]bool{}
	for _, p := range g.cfg.Pools {
		all[ownership.Place{Name: p.Name, Path: p.Path}] = true
	}
	return all
}

func (g *generation) countVolumes() map[string]int {
	counts := map[string]int{}
	for _, p := range g.cfg.Pools {
		counts[p.Name] = 0
	}
	for _, v := range g.allVolumes().List() {
		counts[v.Labels[plan.PoolLabel]]++
	}
	return counts
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
