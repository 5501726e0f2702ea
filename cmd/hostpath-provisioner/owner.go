package main

import (
	"context"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/ownership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

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
	of := plan.Pool{Name: pool.Name, Path: pool.Path, Scope: pool.Scope}
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
