package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/everynode"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

func (c *volumes) newDirectory(w *poolWorker) *everynode.Directory {
	return everynode.New(everynode.Options{
		Self: c.Self, Pool: w.Name, Scope: w.Scope, Disk: w.disk, API: c.API, Volumes: everyNode{c, w},
		Events: c.Events, Metrics: c.Metrics, Log: c.Log,
	})
}

// everyNode is what the controller does for the volumes of scope every-node in a pool.
type everyNode struct {
	c *volumes
	w *poolWorker
}

func (e everyNode) Watched(name string) (*corev1.PersistentVolume, bool) {
	return e.c.Listers.Volumes.Get(name)
}

// PoolOf returns the pool's own settings for a class that is gone, or that was changed since: a pod
// that has the volume already keeps what it has.
func (e everyNode) PoolOf(pv *corev1.PersistentVolume) plan.Pool {
	if class, known := e.c.Listers.Classes.Get(plan.VolumeClass(pv)); known {
		if pool, refusal := e.c.Resolve(class, e.c.configured); refusal == nil && pool.Name == e.w.Name {
			return pool
		}
	}
	return e.w.Pool
}

func (e everyNode) Nodes(ctx context.Context) int { return e.c.cluster.nodeCount(ctx, time.Minute) }

func (e everyNode) InFlight(claimUID string) bool { return e.c.claims.inFlight.busy(claimUID) }

func (e everyNode) Compare(ctx context.Context, h disk.Handle, rec record.Record, marker hostcheck.Marker) error {
	_, err := e.c.record(ctx, e.w, h, rec, e.c.comparisonOf(rec, marker))
	return err
}

func (e everyNode) Purge(pv string) { e.w.purges.Add(item{name: pv}) }

func (e everyNode) LookAtPool() { signal(e.w.kick) }

func (e everyNode) DiskFailed(pv *corev1.PersistentVolume, err error) error {
	return e.c.diskFailed(e.w, pv, err)
}
