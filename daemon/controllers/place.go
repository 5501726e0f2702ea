package controllers

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
)

// A class may lead to several pools of a node, each on a disk of its own. What is begun in one is
// found there by its record (disk.Handle.Promised). A crash, or a disk that goes away meanwhile, may
// leave a directory in one and the volume's object in another: the former is undone by its record,
// as it is empty and the object points elsewhere (plan.RecordFacts.Beside).

// place looks at the pools that a claim's class leads to, and puts its volume into one of them. The
// handle that it returns is that pool's.
func (c *claims) place(ctx context.Context, f *plan.ClaimFacts, pools []plan.Pool) disk.Handle {
	pv := plan.VolumeName(f.Claim)
	handles := make([]disk.Handle, len(pools))
	f.Disks = make([]plan.Disk, len(pools))
	for i, pool := range pools {
		w := c.workers[pool.Name]
		h, _ := w.disk.Open(ctx)
		reason, why := h.State.Closed()
		room := h.RoomFor(pv)
		handles[i] = h
		f.Disks[i] = plan.Disk{
			Pool: pool, Closed: w.elector.Blocked(why), Held: reason == plan.ReasonPoolInUse,
			Cordoned: reason == plan.ReasonCordoned, Room: room, Has: h.Promised(pv),
		}
	}
	chosen := f.Place()
	f.Silent = c.workers[f.Pool.Name].elector.Role() == leadership.Standby
	return handles[chosen]
}

// reserve puts a claim's volume into one of several pools again, by what the claims were given that
// are worked on at the same time, and promises it its size there until drop is called. The caller
// holds placing.
func (c *claims) reserve(
	ctx context.Context, f *plan.ClaimFacts,
) (h disk.Handle, drop func(), err error) {
	pv, size := plan.VolumeName(f.Claim), plan.Needs(f.Claim)
	for range f.Disks { // what grows meanwhile does not wait for the lock
		c.rooms(f)
		f.Place()
		h, _ = c.workers[f.Pool.Name].disk.Open(ctx)
		drop, err = h.Reserve(pv, size)
		if !errors.As(err, new(*capacity.FullError)) {
			break
		}
	}
	if err != nil {
		drop = func() {}
	}
	return h, drop, err
}

// rooms looks again at what a claim's pools have for it, without reading records.
func (c *claims) rooms(f *plan.ClaimFacts) {
	pv := plan.VolumeName(f.Claim)
	for i, d := range f.Disks {
		of := c.workers[d.Pool.Name].disk
		f.Disks[i].Room, f.Disks[i].Has = of.RoomFor(pv), of.Promised(pv)
	}
}

// poolNameOf is the pool whose worker takes a claim: the first of poolsOf.
func (c *frame) poolNameOf(claim *corev1.PersistentVolumeClaim) string {
	return c.poolsOf(claim)[0]
}

// poolsOf are the pools that a claim may have its volume in: "" alone where its class resolves to
// none. Of one that has its volume it is the volume's: the class may have been changed since.
func (c *frame) poolsOf(claim *corev1.PersistentVolumeClaim) (names []string) {
	if v, known := c.Listers.Volumes.Get(claim.Spec.VolumeName); known && plan.Asks(claim) {
		return []string{c.workerOf(v).Name}
	}
	class, known := c.Listers.Classes.Get(plan.ClassName(claim))
	if !known {
		return []string{""}
	}
	pools, refusal := c.Candidates(class, c.configured)
	if refusal != nil {
		return []string{""}
	}
	for _, pool := range pools {
		names = append(names, pool.Name)
	}
	return names
}
