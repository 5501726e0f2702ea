package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controller"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/metrics"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/mountpoint"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/ownership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
)

// Expect is what the host must be for a configured pool. remembered is the ID of the marker that the
// pool had before, "" if none is known; before are the pools that it must not share directories with.
func Expect(node string, p config.Pool, remembered string, before ...config.Pool) hostcheck.Expect {
	if p.Scope != config.ScopeNode {
		node = "" // every node has it
	}
	var neighbours []hostcheck.Neighbour
	for _, other := range before {
		neighbours = append(neighbours, hostcheck.Neighbour{Pool: other.Name, Path: other.Path})
	}
	return hostcheck.Expect{
		Before: neighbours,
		Node:   node, Exclusive: p.Exclusive,
		Pool: p.Name, Path: p.Path, MountPoint: p.MountPoint, RequireMount: p.RequireMount,
		Immutable: hostcheck.Immutability(p.Immutable), Filesystem: p.Filesystem, Device: p.Device,
		ReservePercent: p.ReservePercent, ReserveBytes: p.ReserveBytes, Remembered: remembered, SELinuxType: p.SELinuxType,
	}
}

// pools are the configured pools, each with its store and its prober.
func (d *daemon) pools(cfg config.Config, cluster func() string) []controller.PoolParts {
	var all []controller.PoolParts
	for _, p := range cfg.Pools {
		store := d.storeOf(p, cfg.Node)
		prober := &prober{pool: p, before: cfg.Before(p.Name), node: cfg.Node, cluster: cluster, stateDir: d.StateDir, locks: d.locks, store: store, deadline: deadline, outside: d.outside, unit: d.unit}
		all = append(all, controller.PoolParts{
			Pool: planPool(p), Storage: store, Label: labelOf(p), Probe: prober, Opened: prober.remember,
		})
	}
	return all
}

// labelOf is the SELinux label that volumes are born with, "" where there is no SELinux.
func labelOf(p config.Pool) string {
	if p.SELinuxType == "" || !selinux.Enabled() {
		return ""
	}
	return selinux.Label(p.SELinuxType)
}

func planPool(p config.Pool) plan.Pool {
	return plan.Pool{
		Name: p.Name, Path: p.Path, Scope: p.Scope, Source: p.Source, Mode: p.Mode, UID: p.UID, GID: p.GID,
		OnDelete: p.OnDelete, Default: p.Default, Directory: p.Directory.Expand, CephFS: p.CephFSQuota,
		Reclaim: p.ReclaimPolicy, Named: p.Directory != config.DefaultPool(p.Name).Directory,
	}
}

func (d *daemon) storeOf(p config.Pool, node string) *volume.Pool {
	key := storeKey{p.Name, p.Path, p.MountPoint, p.Scope}
	if d.store[key] == nil {
		d.store[key] = volume.New(volume.Options{Name: p.Name, Path: p.Path, HostID: hostID(p, node)})
	}
	return d.store[key]
}

// prober looks at a pool with what the state directory remembers of it. It is used by one goroutine,
// the pool's loop.
type prober struct {
	pool       config.Pool
	node       string
	cluster    func() string // "" as long as it is not known
	before     []config.Pool
	stateDir   string
	locks      *ownership.Locks
	store      *volume.Pool
	deadline   time.Duration // for a response
	outside    func(path string) *RestartError
	unit       Unit
	remembered hostcheck.Marker
	probe      *hostcheck.Prober
}

// Probe reads what is remembered each time, because `prepare` may write it meanwhile. A state
// directory that cannot be read keeps the pool closed: another filesystem could stand in its place.
func (p *prober) Probe(ctx context.Context) hostcheck.Report {
	remembered, err := state.Recall(p.stateDir, p.pool.Name)
	if err != nil {
		return hostcheck.Report{Pool: p.pool.Name, Path: p.pool.Path, Findings: []hostcheck.Finding{{
			Reason: plan.ReasonStateUnreadable, Severity: hostcheck.Close,
			Message: fmt.Sprintf("what this host remembers of the pool cannot be read: %v", err),
		}}}
	}
	p.expect(remembered)
	ctx, cancel := p.impatient(ctx)
	defer cancel()
	report := p.probe.Probe(ctx)
	if w := p.waiting(); p.counts(w, report) {
		report.Findings = append([]hostcheck.Finding{{Reason: hostcheck.ReasonNotAnswering, Severity: hostcheck.Close,
			Message: fmt.Sprintf("%s: no answer for more than %s", w.About, w.Limit)}}, report.Findings...)
	}
	p.reach(&report)
	if report.Removable() {
		p.locks.Guard(&report)
	}
	p.unit.Explain(p.pool, true, &report)
	return report.Without(p.pool.Accepts)
}

// waiting is a call of the pool's store to which the filesystem has not replied, for less than the deadline, so that
// the pool is closed within it.
func (p *prober) waiting() volume.Waiting { return p.store.Waiting(p.deadline * 3 / 4) }

// counts reports whether a call that waits closes the pool: one that waits on a mount which is not the
// pool's any more does not.
func (p *prober) counts(w volume.Waiting, r hostcheck.Report) bool {
	return w.For > 0 && w.Where == r.Identity && r.Removable()
}

// impatient ends a look early when a call gets no response: no need to wait any longer to know. Where it
// is known already, or the last look waits still, the look only sees whether that is over.
func (p *prober) impatient(ctx context.Context) (context.Context, context.CancelFunc) {
	glance := p.deadline / 20
	if p.waiting().For > 0 || p.probe.Waiting() > p.deadline {
		return context.WithTimeout(ctx, glance)
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		every := time.NewTicker(glance)
		defer every.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-every.C:
				if p.waiting().For > 0 {
					cancel()
				}
			}
		}
	}()
	return ctx, cancel
}

func (p *prober) expect(remembered hostcheck.Marker) {
	if p.probe == nil || remembered.ID != p.remembered.ID {
		p.probe = hostcheck.NewProber(Expect(p.node, p.pool, remembered.ID, p.before...)).Asking(mountpoint.Service, mountpoint.Under)
	}
	p.remembered = remembered
	if p.cluster != nil {
		p.probe.SetCluster(p.cluster())
	}
}

// remember keeps the marker of a pool that opened for the first time, or on a host whose state
// directory was lost, or whose marker names another owner since.
func (p *prober) remember(m hostcheck.Marker) error {
	if m == p.remembered {
		return nil
	}
	if err := state.Remember(p.stateDir, p.pool.Name, m); err != nil {
		return err
	}
	p.expect(m)
	return nil
}

// observer counts, and lets the status be written anew.
type observer struct {
	*metrics.Metrics
	changed chan struct{}
}

func (o observer) Pool(s gate.State) {
	o.Metrics.Pool(s)
	signal(o.changed)
}
