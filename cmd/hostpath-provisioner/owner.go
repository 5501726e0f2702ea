package main

import (
	"context"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/ownership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// records are those of a pool that was looked at.
func records(ctx context.Context, pool config.Pool, r hostcheck.Report) ([]record.Record, error) {
	inventory, err := volume.New(volume.Options{Name: pool.Name, Path: pool.Path}).List(ctx, r.Identity)
	return inventory.Volumes, err
}

// foreignRecords finds what the records say against this node's working in a pool. What cannot be
// read is said by the volumes command.
func (p *program) foreignRecords(ctx context.Context, pool config.Pool, r hostcheck.Report) []hostcheck.Finding {
	if !r.Removable() {
		return nil
	}
	all, err := records(ctx, pool, r)
	if err != nil {
		return nil
	}
	of := plan.Pool{Name: pool.Name, Path: pool.Path, Scope: pool.Scope}
	return ownership.Findings(ownership.Facts{Pool: of, Node: p.node, NodeKnown: true, MarkedNode: r.Mark.Node, MarkedScope: r.Mark.Scope,
		Census: ownership.CensusOf(all, of, p.node, r.Mark.Former())})
}

// recordedNodes are the nodes that the records of a pool name.
func recordedNodes(ctx context.Context, pool config.Pool, r hostcheck.Report) ([]string, error) {
	all, err := records(ctx, pool, r)
	var names []string
	for _, r := range all {
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
