package main

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/ownership"
	volumeusage "github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// probed is what one look at a pool found, with what its records promise.
type probed struct {
	hostcheck.Report
	promised *uint64 // to the pool's volumes, in bytes; nil: the records were not read
	onDevice uint64  // to those of all pools on its filesystem
	used     *uint64 // what they take; nil: only a running daemon knows, or nobody
	note     string  // what check says besides, "" for nothing
}

// probeAll looks at all pools at once, so that one that hangs does not delay the others. What one
// more volume can get is less by what other pools on the same filesystem promised, so that these
// are looked at, too.
func (p *program) probeAll(ctx context.Context, pools []config.Pool) []probed {
	looked := append([]config.Pool(nil), pools...)
	for _, other := range p.loaded.Pools {
		if beside(other, pools) {
			looked = append(looked, other)
		}
	}
	all := make([]probed, len(looked))
	var looking sync.WaitGroup
	for i, pool := range looked {
		looking.Go(func() { all[i] = p.probeCounted(ctx, pool) })
	}
	looking.Wait()
	promised, reports := map[string]uint64{}, []hostcheck.Report{}
	for _, one := range all {
		reports = append(reports, one.Report)
		if one.promised != nil && one.Device != "" {
			promised[one.Device] = capacity.Plus(promised[one.Device], *one.promised)
		}
	}
	for i, pool := range pools {
		all[i].onDevice = promised[all[i].Device]
		all[i].judge(pool, all[i].onDevice, reports)
	}
	return all[:len(pools)]
}

// judge adds what the daemon says of a pool that is in order: what one more volume can get.
func (one *probed) judge(pool config.Pool, onDevice uint64, all []hostcheck.Report) {
	r := &one.Report
	if one.used == nil && one.promised != nil {
		one.used = daemon.Used(volumeusage.Pool{}, *r, daemon.Alone(pool, r.Device, all)).Used
	}
	if one.promised == nil || r.Size == 0 {
		return
	}
	room := one.space(pool).Room(max(onDevice, *one.promised))
	r.Free = room.Free
	if message := plan.AllPromised(room); message != "" && r.Open() {
		r.AddFirst(hostcheck.Finding{
			Reason: plan.ReasonPromised, Severity: hostcheck.Full, Message: message})
	}
}

func (one *probed) space(pool config.Pool) capacity.Space {
	r := one.Report
	return capacity.Space{
		Device: r.Device, Size: r.Size, RootOnly: r.RootOnly, Available: r.Available,
		Reserve: r.Reserve, Overcommit: cmp.Or(pool.Overcommit, 1),
	}
}

// promises is an error if more is promised in a pool than it may be, now that a volume of this size
// is recorded there. The daemon counts the records before it promises anything more.
func (p *program) promises(ctx context.Context, pool config.Pool, store *volume.Pool,
	id mounts.Identity, size uint64) error {
	if err := store.Announce(ctx, id); err != nil {
		return err
	}
	one := p.probeAll(ctx, []config.Pool{pool})[0]
	switch f, closed := one.Closed(); {
	case closed:
		return closedError{pool, f}
	case one.promised == nil:
		return fmt.Errorf("pool %s: its records cannot be read", pool.Name)
	case one.space(pool).Over(max(one.onDevice, *one.promised)):
		return fmt.Errorf("pool %s has no room: %s are promised to others by now, and the volume "+
			"takes %s", pool.Name, words.Size(one.onDevice-min(one.onDevice, size)),
			words.Size(size))
	}
	return nil
}

// probeCounted is probe with what the records promise.
func (p *program) probeCounted(ctx context.Context, pool config.Pool) probed {
	r, inventory := p.look(ctx, pool)
	one := probed{Report: r, note: p.sourceNote(pool, inventory)}
	if inventory != nil && r.Removable() {
		promised := inventory.Promised()
		one.promised = &promised
	}
	if pool.Quota == plan.QuotaProject && r.Removable() {
		if takes, err := storeOf(pool).Usage(ctx, r.Identity); err == nil {
			one.used = daemon.Used(takes, r, false).Used
			one.Findings = append(one.Findings, projects(takes)...)
		}
	}
	return one
}

// beside reports whether a pool is none of these and on the filesystem of one, by the mount table.
func beside(other config.Pool, pools []config.Pool) bool {
	on, known := coveringMount(other.Path)
	found := false
	for _, pool := range pools {
		if pool.Name == other.Name {
			return false
		}
		its, has := coveringMount(pool.Path)
		found = found || known && has && its.Major == on.Major && its.Minor == on.Minor
	}
	return found
}

func coveringMount(path string) (on mounts.Mount, found bool) {
	table, err := mounts.OpenTable()
	if err != nil {
		return on, false
	}
	all, _, err := table.Mounts()
	on, found = mounts.Covering(all, path)
	return on, found && err == nil
}

// inventoryOf is what is in a pool that was looked at, nil if that cannot be read: the volumes
// command says why.
func inventoryOf(ctx context.Context, pool config.Pool, r hostcheck.Report) *volume.Inventory {
	if !r.Removable() {
		return nil
	}
	all, err := storeOf(pool).List(ctx, r.Identity)
	if err != nil {
		return nil
	}
	return &all
}

// foreignRecords finds what the records say against this node's working in a pool.
func (p *program) foreignRecords(pool config.Pool, r hostcheck.Report,
	inventory *volume.Inventory) []hostcheck.Finding {
	if inventory == nil {
		return nil
	}
	all := inventory.Volumes
	of := daemon.PlanPool(pool)
	return ownership.Findings(ownership.Facts{Pool: of, Node: p.node, NodeKnown: true,
		MarkedNode: r.Mark.Node, MarkedScope: r.Mark.Scope,
		Census: ownership.CensusOf(all, of, p.node, r.Mark.Former())})
}

// recordedNodes are the nodes that the records of a pool name.
func recordedNodes(ctx context.Context, pool config.Pool, r hostcheck.Report) ([]string, error) {
	all, err := storeOf(pool).List(ctx, r.Identity)
	var names []string
	for _, r := range all.Volumes {
		names = append(names, r.Node)
	}
	return names, err
}

// otherCluster finds that a pool is not the cluster's that the kubeconfig leads to.
func otherCluster(pool config.Pool, mark hostcheck.Marker, cluster string) (hostcheck.Finding, bool) {
	if cluster == "" || mark.Cluster == "" || mark.Cluster == hostcheck.ClusterAny || mark.Cluster == cluster {
		return hostcheck.Finding{}, false
	}
	return hostcheck.Finding{Reason: hostcheck.ReasonOtherCluster, Severity: hostcheck.Close, Message: fmt.Sprintf(
		"%s is a pool of the cluster with the UID %s, and the kubeconfig leads to the cluster with the UID %s", pool.Path, mark.Cluster, cluster)}, true
}

// storeOf is a pool's directory with its quotas.
func storeOf(pool config.Pool) *volume.Pool {
	store := volume.New(volume.Options{Name: pool.Name, Path: pool.Path})
	store.SetQuotas(daemon.ProjectQuotas(pool, &volume.BegunProjects{}))
	return store
}
