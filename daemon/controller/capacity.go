package controller

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
)

// Capacity is what one more volume of a class can get on this node, in bytes: 0 where its pool takes none, or the node has
// no pool for it. known is false before that was checked and counted.
func (c *Controller) Capacity(class *storagev1.StorageClass) (bytes uint64, known bool) {
	pool, refusal := c.Resolve(class, c.pools)
	if refusal != nil {
		return 0, true
	}
	w := c.workers[pool.Name]
	state := c.Gate.State(pool.Name)
	switch {
	case !state.Checked:
		return 0, false
	case !state.Open():
		return 0, true
	case !w.elector.Leads():
		return w.disk.RoomWith(c.promisedBy(w)).Free, true
	}
	room, _, counted := w.disk.Room()
	return room.Free, counted
}

// promisedBy is what the volume objects of a shared pool say that was promised: the records are counted by the node that
// works in it.
func (c *Controller) promisedBy(w *poolWorker) (sum uint64) {
	for _, v := range c.Listers.Volumes.List() {
		if v.Labels[plan.PoolLabel] == w.Name && v.Labels[plan.ScopeLabel] == plan.ScopeShared {
			n, _ := plan.Bytes(v.Spec.Capacity[corev1.ResourceStorage])
			sum += uint64(n)
		}
	}
	return sum
}
