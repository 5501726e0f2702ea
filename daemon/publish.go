package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/away"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/ownership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/presence"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/storagecapacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/metrics"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/inline"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/pause"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// newPublishers makes what publishes: of the daemon's own provisioner, and of each CSI driver in
// whose place it is.
func (g *generation) newPublishers() (all storagecapacity.Group) {
	for _, driver := range g.self.Drivers() {
		all = append(all, g.newPublisher(driver))
	}
	return all
}

func (g *generation) newPublisher(driver string) *storagecapacity.Publisher {
	what, alias := "the capacity for the scheduler", ""
	if driver != g.cfg.Provisioner {
		what, alias = what+" of "+driver, " --alias "+driver
	}
	o := storagecapacity.Options{
		Provisioner: driver, Node: plan.NodeLabelValue(g.cfg.Node), Enabled: g.cfg.PublishCapacity,
		API: g.client.Publishing(driver), Log: g.d.Log,
		Wanted:    func() ([]storagecapacity.Object, bool) { return g.capacities(driver) },
		Classes:   func() []string { return g.comparedClasses(driver) },
		Requested: func(err error) { g.controller.OptionalRequest(what, err) },
		Mend: "hostpath-provisioner manifests --no-classes --provisioner " + g.cfg.Provisioner +
			" --namespace " + cmp.Or(g.cfg.Namespace, kube.DefaultNamespace) + alias +
			" | kubectl apply -f -",
	}
	if driver == g.cfg.Provisioner { // one look at the nodes is enough
		o.Reviewed = away.New(away.Options{Self: g.self, API: g.client, Count: g.d.metrics.Away,
			Done: func(err error) {
				g.controller.OptionalRequest("the volumes of nodes that are gone", err)
			}}).Look
	}
	return storagecapacity.New(o)
}

// nameless reports whether the Node does not tell which host it is, and can have a lease that does.
func (g *generation) nameless() bool {
	node, there := g.nodes.Get(g.cfg.Node)
	return there && ownership.HostOf(node) == (ownership.Host{}) &&
		presence.Name(node.Name) != ""
}

// leaseFile is in the state directory once the node's lease was written. It is not made durable:
// without it the lease is thought to be new, and read when it is not.
const leaseFile = "node-lease"

// newPresence makes what keeps the node's lease.
func (g *generation) newPresence() *presence.Keeper {
	_, err := state.ReadFile(g.d.StateDir, leaseFile)
	first := errors.Is(err, fs.ErrNotExist)
	kept := !first
	return presence.New(presence.Options{
		Identity: leadership.Identity(g.cfg.Node), API: g.client, Clock: leadership.BootTime,
		Changed: func() { g.controller.Look() }, Needed: g.nameless,
		First: first, Key: presence.StateKey(g.cfg.Provisioner), State: g.told,
		Requested: func(err error) {
			g.controller.OptionalRequest("the node's lease", err)
			if !kept && err == nil {
				kept = true
				go g.keepLeaseFile() // the disk may not respond
			}
		},
	})
}

// keepLeaseFile notes that the node's lease was written.
func (g *generation) keepLeaseFile() {
	if err := state.WriteFile(g.d.StateDir, leaseFile, nil, 0o600); err != nil {
		g.d.Log.Warn("that the node has a lease was not kept for the next start: " + err.Error())
	}
}

// told is what the node's lease tells of this daemon, "" before work has begun, and where the name
// is another host's.
func (g *generation) told() (text, news string) {
	node, there := g.nodes.Get(g.cfg.Node)
	if !g.ready.Load() || !there || presence.Name(node.Name) == "" ||
		g.d.host.Differs(ownership.HostOf(node)) != "" {
		return "", ""
	}
	told := stateOf(g.status())
	if is := g.client.Credential(); told.Reason == "" && endsSoon(is, told.Time) {
		told.Reason = plan.ReasonCredentialEnds
		told.Message = "its credential ends at " + is.Expires.UTC().Format(time.RFC3339)
	}
	return told.Encode()
}

// endsSoon reports whether a credential is in its last day, or in the last tenth of a shorter life:
// it is renewed before that.
func endsSoon(is kube.Credential, now time.Time) bool {
	last := 24 * time.Hour
	if !is.Issued.IsZero() {
		last = min(last, is.Expires.Sub(is.Issued)/10)
	}
	return !is.Expires.IsZero() && is.Expires.Sub(now) < last
}

// stateOf is what of a status the cluster is told.
func stateOf(s Status) presence.State {
	told := presence.State{Time: s.Time.UTC().Truncate(time.Second), Version: s.Version}
	switch waits := s.Refuses(); {
	case s.Stalled != "":
		told.Reason, told.Message = hostcheck.ReasonNotAnswering, s.Stalled
	case waits != nil:
		told.Reason, told.Message = plan.ReasonAPIRefused, waits.What+": "+waits.Message
	case s.Config != "":
		told.Reason, told.Message = plan.ReasonNotInForce, s.Config
	}
	for _, p := range s.Pools {
		told.Pools = append(told.Pools, presence.Pool{
			Name: p.Name, State: p.State(), Reason: p.Reason, Message: p.Message,
			Since: p.Since.UTC().Truncate(time.Second), Volumes: p.Volumes,
			Lost: p.States["missing"] + p.States["damaged"],
			Size: p.Size, Used: p.Used, UsedEstimate: p.UsedEstimate, Promised: p.Promised,
			Free: p.Free,
		})
	}
	return told
}

// publish tells the scheduler what there is, once the work has begun.
func (g *generation) publish(ctx context.Context, started <-chan struct{}) {
	if !await(ctx, started) {
		return
	}
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-g.d.promises.Changed():
				g.publishers.Changed()
			}
		}
	}()
	g.publishers.Run(ctx)
}

// compares reports whether a class is of this driver, and the scheduler chooses its claims' nodes.
func (g *generation) compares(driver string, class *storagev1.StorageClass) bool {
	return class.Provisioner == driver && g.self.Compares(class)
}

// comparedClasses are the names of a driver's classes for whose claims the scheduler chooses nodes.
func (g *generation) comparedClasses(driver string) (names []string) {
	for _, class := range g.classes.List() {
		if g.compares(driver, class) {
			names = append(names, class.Name)
		}
	}
	return names
}

// capacities are the objects that this node is to publish for a driver. Without its Node object
// there are none.
func (g *generation) capacities(driver string) (all []storagecapacity.Object, known bool) {
	node, there := g.nodes.Get(g.cfg.Node)
	if !there || node.Labels[plan.HostnameLabel] == "" {
		return nil, there
	}
	owner := storagecapacity.Owner{Name: node.Name, UID: string(node.UID)}
	for _, class := range g.classes.List() {
		if !g.compares(driver, class) {
			continue
		}
		bytes, closed, known := g.controller.Capacity(class)
		if !known {
			return nil, false
		}
		all = append(all, storagecapacity.NodeObject(driver, plan.NodeLabelValue(g.cfg.Node),
			node.Labels[plan.HostnameLabel], class.Name, owner, bytes, closed))
	}
	return all, true
}

// observer counts, lets the status be written anew, and has the scheduler told what changed.
type observer struct {
	*metrics.Metrics
	changed    chan struct{}
	publishers storagecapacity.Group
}

// Pool is part of controllers.Metrics.
func (o observer) Pool(s gate.State) {
	o.Metrics.Pool(s)
	signal(o.changed)
	o.publishers.Changed()
}

// Claim is part of controllers.Metrics. A claim that there is no room for was sent here by what was
// published, perhaps.
func (o observer) Claim(pool, reason string, took time.Duration) {
	o.Metrics.Claim(pool, reason, took)
	if reason == plan.ReasonNotEnoughSpace {
		o.publishers.Refused()
	}
}

// pauser is part of controllers.Options.
type pauser struct{ pause.Client }

// Pause is part of controllers.Pauser.
func (p pauser) Pause(ctx context.Context, pool, volume string) (context.Context, func() (controllers.Paused, error), error) {
	paused, one, err := p.Begin(ctx, pool, volume)
	if err != nil {
		return nil, nil, err
	}
	return paused, func() (controllers.Paused, error) {
		took, err := one.End()
		return controllers.Paused{Pods: one.Pods, For: took}, err
	}, nil
}

// serveInline makes inline volumes for the CSI node service, and takes them away, until ctx ends.
// Before each pool was checked it would refuse them: a pod that asked while the daemon was away
// waits in the node service until then.
func (g *generation) serveInline(ctx context.Context, checked <-chan struct{}) {
	if !await(ctx, checked) {
		return
	}
	inline.Daemon{Socket: inline.SocketPath(g.cfg.KubeletRoot, g.cfg.Provisioner), Do: g.doInline}.Run(ctx)
}

func (g *generation) doInline(ctx context.Context, r inline.Request) error {
	switch r.Act {
	case inline.Make:
		return g.controller.MakeInline(ctx, controllers.InlineVolume{
			Driver: r.Driver, Handle: r.Handle, Pool: r.Pool, Size: r.Size, Namespace: r.Namespace, Pod: r.Pod, UID: r.UID,
		})
	case inline.End:
		return g.controller.EndInline(ctx, r.Handle)
	}
	return fmt.Errorf("%q is not known to this version of the daemon", string(r.Act))
}
