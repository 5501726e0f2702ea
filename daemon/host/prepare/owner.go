package prepare

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// Owner is what the operator says of whose the pool is.
type Owner struct {
	Node       string // this node's name
	From       string // the node whose pool this was, and is not any more; "" says nothing
	FromPool   string // what that node called the pool, "" as this one does
	NewCluster bool   // the next cluster that a daemon finds is the pool's
	FromShared bool   // nodes shared the pool, and do not any more
	Shared     bool   // the pool has scope shared
	// Recorded are the nodes that the pool's records name.
	Recorded func(context.Context, hostcheck.Report) ([]string, error)
}

// handOver writes into the marker whose the pool is from now on. A crash between the marker and the
// memory of it leaves a marker that the daemon remembers.
func (o Options) handOver(ctx context.Context, r *Result) error {
	if o.Owner.From == "" && !o.Owner.NewCluster && !o.Owner.FromShared {
		return nil
	}
	report := o.Check(ctx)
	found, err := o.markerAt(report.Identity)
	if err != nil || found == nil {
		return err
	}
	m := *found
	if o.Owner.From != "" {
		if m, err = o.takenOver(ctx, report, m); err != nil {
			return fmt.Errorf("pool %q: %w", o.Pool.Name, err)
		}
	}
	if o.Owner.NewCluster {
		m.Cluster = hostcheck.ClusterAny
	}
	if o.Owner.FromShared {
		m.Scope = ""
	}
	if m == *found {
		return nil
	}
	if err := o.Marking.Remark(ctx, report.Identity, m); err != nil {
		return err
	}
	o.tell(r, *found, m)
	return state.Remember(o.StateDir, o.Pool.Name, m)
}

// takenOver is the marker of a pool that was another node's, and is this one's or shared. Its
// records may keep that node's name.
func (o Options) takenOver(ctx context.Context, report hostcheck.Report, m hostcheck.Marker) (hostcheck.Marker, error) {
	from, former := o.Owner.From, m.Former()
	recorded, err := o.Owner.Recorded(ctx, report)
	switch {
	case err != nil:
		return m, err
	case m.Node != "" && m.Node != from && m.Node != o.Owner.Node:
		return m, fmt.Errorf("the marker names node %q, not %q: %w", m.Node, from, ErrNotOwner)
	case m.Node != from && !slices.Contains(former, from) && !slices.Contains(recorded, from):
		return m, fmt.Errorf("neither the marker nor a record names node %q: %w", from, ErrNotOwner)
	}
	if o.Owner.FromPool != "" {
		m.Pool = o.Pool.Name
	}
	if o.Owner.Shared {
		m.Node = ""
		return m, nil
	}
	if !slices.Contains(former, from) {
		former = append(former, from)
	}
	former = slices.DeleteFunc(former, func(name string) bool { return name == o.Owner.Node })
	m.Node, m.FormerNodes = o.Owner.Node, strings.Join(former, " ")
	return m, nil
}

func (o Options) tell(r *Result, was, now hostcheck.Marker) {
	if was.Node != now.Node || was.FormerNodes != now.FormerNodes {
		r.did("noted in marker %s that the pool was node %s's and is %s", now.ID, o.Owner.From, whose(now))
		r.note("PersistentVolumes keep the name of node %s: see docs/operation.md, \"A node with another name\"", o.Owner.From)
	}
	if was.Pool != now.Pool {
		r.did("noted in marker %s that the pool was called %s and is called %s", now.ID, was.Pool, now.Pool)
		r.note("PersistentVolumes keep the path and the pool that they have: see docs/operation.md, " +
			"\"A node with another name\"")
	}
	if was.Scope != now.Scope {
		r.did("noted in marker %s that nodes do not share the pool any more", now.ID)
	}
	if was.Cluster != now.Cluster {
		r.did("noted in marker %s that the pool belongs to the cluster that the daemon finds next", now.ID)
	}
}

// whose is whose the pool is by its marker, for a sentence.
func whose(m hostcheck.Marker) string {
	if m.Node == "" {
		return "shared"
	}
	return "node " + m.Node + "'s"
}
