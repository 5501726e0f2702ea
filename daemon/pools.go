package daemon

import (
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/prober"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
)

// pools are the configured pools, each with its store and its prober.
func (d *daemon) pools(cfg config.Config, cluster func() string) []controllers.PoolParts {
	var all []controllers.PoolParts
	for _, p := range cfg.Pools {
		store, unit := d.storeOf(p, cfg.Node), d.unit
		probe := prober.New(prober.Options{
			Pool: p, Before: cfg.Before(p.Name), Node: cfg.Node, Cluster: cluster, StateDir: d.StateDir, Locks: d.locks, Store: store, Deadline: deadline,
			Outside: d.outsideOf(p), Explain: func(r *hostcheck.Report) { unit.Explain(p, true, r) },
		})
		all = append(all, controllers.PoolParts{
			Pool: PlanPool(p), Storage: store, Label: LabelOf(p), Probe: probe, Opened: probe.Opened,
			Account: d.promises.Account(accountKey(p)), Overcommit: p.Overcommit,
			Figures: d.figuresOf(p),
		})
	}
	return all
}

// accountKey tells what is promised in one directory from what is in another one.
func accountKey(p config.Pool) string { return p.Name + "\x00" + p.Path }

// keepAccounts drops what pools promised that are not configured any more.
func (d *daemon) keepAccounts(cfg config.Config) {
	d.promises.Keep(each(cfg.Pools, accountKey)...)
}

// LabelOf is the SELinux label that volumes are born with, "" where there is no SELinux.
func LabelOf(p config.Pool) string {
	if p.SELinuxType == "" || !selinux.Enabled() {
		return ""
	}
	return selinux.Label(p.SELinuxType)
}

// each is what becomes of each pool.
func each[T any](pools []config.Pool, of func(config.Pool) T) (all []T) {
	for _, p := range pools {
		all = append(all, of(p))
	}
	return all
}

// PlanPool is a configured pool as the rules see it.
func PlanPool(p config.Pool) plan.Pool {
	return plan.Pool{
		Name: p.Name, Set: p.Set, Path: p.Path, Scope: p.Scope, Source: p.Source, Mode: p.Mode, UID: p.UID, GID: p.GID,
		OnDelete: p.OnDelete, Default: p.Default, Directory: p.Directory.Expand, Quota: p.Quota, Clones: p.Clones, Snapshots: p.Snapshots, Inline: p.InlineVolumes,
		SnapshotSpace: p.SnapshotSpace, Sourced: p.SourceSet,
		Reclaim: p.ReclaimPolicy, Named: p.Directory != config.DefaultPool(p.Name).Directory,
	}
}

// figuresOf are kept for the pool also where its configuration changes.
func (d *daemon) figuresOf(p config.Pool) *usage.Figures {
	if d.figures == nil {
		d.figures = map[storeKey]*usage.Figures{}
	}
	if d.figures[keyOf(p)] == nil {
		d.figures[keyOf(p)] = new(usage.Figures)
	}
	return d.figures[keyOf(p)]
}

func keyOf(p config.Pool) storeKey { return storeKey{p.Name, p.Path, p.MountPoint, p.Scope} }

func (d *daemon) storeOf(p config.Pool, node string) *volume.Pool {
	key := keyOf(p)
	if d.store[key] == nil {
		d.store[key] = volume.New(volume.Options{Name: p.Name, Path: p.Path, HostID: hostID(p, node)})
	}
	d.store[key].SetQuotas(ProjectQuotas(p, &d.begun))
	return d.store[key]
}

// hostID tells this daemon from those of other hosts in a pool that they share, "" in other pools.
func hostID(p config.Pool, node string) string {
	if p.Scope != plan.ScopeShared {
		return ""
	}
	return leadership.HostID(node)
}
