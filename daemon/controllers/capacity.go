package controllers

import (
	"cmp"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// Capacity is what one more volume of a class can get on this node, in bytes, of several pools in
// the one that has most: 0 where all are closed, or the node has no pool for it, for the reason
// closed. known is false before that was checked and counted.
func (c *pools) Capacity(class *storagev1.StorageClass) (bytes uint64, closed string, known bool) {
	pools, refusal := c.Candidates(class, c.configured)
	if refusal != nil {
		return 0, refusal.Reason, true
	}
	open := false
	for _, pool := range pools {
		one, why, known := c.capacityOf(pool)
		if !known {
			return 0, "", false
		}
		bytes, closed, open = max(bytes, one), cmp.Or(closed, why), open || why == ""
	}
	if open {
		closed = ""
	}
	return bytes, closed, true
}

// capacityOf is Capacity of one pool.
func (c *pools) capacityOf(pool plan.Pool) (bytes uint64, closed string, known bool) {
	w := c.workers[pool.Name]
	state := c.Gate.State(pool.Name)
	switch {
	case !state.Checked:
		return 0, "", false
	case !state.Open():
		closed, _ = state.Closed()
		return 0, closed, true
	case !w.elector.Leads():
		return w.disk.RoomWith(c.promisedBy(w)).Free, "", true
	}
	room, _, counted := w.disk.Room()
	return room.Free, "", counted
}

// promisedBy is what the volume objects of a shared pool say that was promised: the records are
// counted by the node that works in it.
func (c *pools) promisedBy(w *poolWorker) (sum uint64) {
	for _, v := range c.Listers.Volumes.List() {
		if v.Labels[plan.PoolLabel] == w.Name && v.Labels[plan.ScopeLabel] == plan.ScopeShared {
			n, _ := plan.Bytes(plan.SizeOf(v))
			sum += uint64(n)
		}
	}
	return sum
}
