package controllers

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/ownership"
)

func (c *frame) newIdentity() *ownership.Cluster {
	return ownership.NewCluster(ownership.ClusterOptions{
		API: identityAPI{c.API, c}, Changed: c.Look, Log: c.Log,
		Watched: func(name string) (*corev1.PersistentVolume, bool) { return c.Listers.Volumes.Get(name) },
	})
}

// identityAPI is the API as far as it says which cluster it serves.
type identityAPI struct {
	API
	c *frame
}

// ClusterID is part of ownership.ClusterOptions.
func (i identityAPI) ClusterID(ctx context.Context) (string, error) {
	id, err := i.API.ClusterID(ctx)
	i.c.NodeRequest("the cluster's ID", err)
	return id, err
}

func (c *pools) newOwner(w *poolWorker) *ownership.Pool {
	return ownership.New(ownership.Options{
		Pool: w.Pool, Node: c.Node, Cluster: c.identity, Disk: w.disk, Deadline: c.Deadline, Log: c.Log,
		NodeKnown: func() bool { _, known := c.Listers.Nodes.Get(c.Node); return known },
		Host:      c.Host,
		BoundNode: func() string {
			if c.BoundNode == nil {
				return ""
			}
			return c.BoundNode()
		},
		Holder: func() string {
			if c.Holder == nil {
				return ""
			}
			return c.Holder()
		},
		Reported: func() ownership.Host {
			node, _ := c.Listers.Nodes.Get(c.Node)
			if node == nil {
				return ownership.Host{}
			}
			return ownership.HostOf(node)
		},
		Look:    func() { signal(w.kick) },
		Objects: func() []*corev1.PersistentVolume { return c.Listers.Volumes.List() },
		Beside:  func(v *corev1.PersistentVolume) bool { return c.beside(w, v) },
	})
}

// Cluster is the cluster's ID, "" as long as it is not known.
func (c *frame) Cluster() string { return c.identity.ID() }

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
