package controllers

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/podclaims"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

// A class may lead to several pools of a node, each on a disk of its own. What is begun in one is
// found there by its record (disk.Handle.Promised). A crash, or a disk that goes away meanwhile, may
// leave a directory in one and the volume's object in another: the former is undone by its record,
// as it is empty and the object points elsewhere (plan.RecordFacts.Beside).

// place looks at the pools that a claim's class leads to, and puts its volume into one of them. The
// handle that it returns is that pool's.
func (c *claims) place(ctx context.Context, f *plan.ClaimFacts, pools []plan.Pool) disk.Handle {
	handles := make([]disk.Handle, len(pools))
	f.Disks = make([]plan.Disk, len(pools))
	for i, pool := range pools {
		w := c.workers[pool.Name]
		h, _ := w.disk.Open(ctx)
		reason, why := h.State.Closed()
		handles[i] = h
		f.Disks[i] = plan.Disk{
			Pool: pool, Closed: w.elector.Blocked(why), Held: reason == plan.ReasonPoolInUse,
			Cordoned: reason == plan.ReasonCordoned,
		}
		h.Room() // counted before the lock is held
	}
	c.placing.Lock() // what is promised a pod until one of its claims does not fit is not seen
	c.rooms(f)
	c.placing.Unlock()
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

// placer chooses this node for the claims of pods that name it themselves (spec.nodeName): the
// scheduler never sees such a pod, and chooses none. All of it is of one goroutine.
type placer struct {
	*claims
	due map[string]time.Time // when a pod is looked at again
}

const (
	// placePause is the shortest time between two rounds, and placeMost about how many claims get
	// their node in one: so a tenant who makes very many such pods costs twenty writes a second.
	placePause = 500 * time.Millisecond
	placeMost  = 10
	placeIdle  = time.Minute
	placeAgain = 30 * time.Second // for a pod whose claims are refused
)

// PodChanged is called with each pod of Listers.Pods that came, changed or went.
func (c *claims) PodChanged(_, _ *corev1.Pod) { wake.Signal(c.podNews) }

// placePods chooses nodes until ctx ends.
func (c *claims) placePods(ctx context.Context) {
	p := placer{c, map[string]time.Time{}}
	rounds(ctx, placePause, placePause, c.podNews, p.round)
}

// round looks at the pods that are due, and returns when to begin the next round.
func (p *placer) round(ctx context.Context) time.Duration {
	next, there, chosen := placeIdle, map[string]bool{}, 0
	for _, pod := range p.Listers.Pods.List() {
		there[string(pod.UID)] = true
		if wait := time.Until(p.due[string(pod.UID)]); wait > 0 {
			next = min(next, wait)
			continue
		}
		open := p.open(pod)
		if len(open) == 0 {
			continue
		}
		if chosen >= placeMost {
			next = 0
			break
		}
		chosen += len(open)
		wait := p.choose(ctx, pod, open)
		p.due[string(pod.UID)], next = time.Now().Add(wait), min(next, wait)
	}
	for uid := range p.due {
		if !there[uid] && next > 0 {
			delete(p.due, uid)
		}
	}
	return max(next, placePause)
}

// open are the claims of a pod that wait for their node.
func (p *placer) open(pod *corev1.Pod) (all []*corev1.PersistentVolumeClaim) {
	for _, name := range plan.PodClaims(pod) {
		claim, known := p.Listers.Claims.Get(pod.Namespace + "/" + name)
		if !known {
			continue
		}
		class, known := p.Listers.Classes.Get(plan.ClassName(claim))
		if known && plan.Placeable(claim, class) {
			all = append(all, claim)
		}
	}
	return all
}

// choose writes this node's name on a pod's claims, or tells them why not. It returns when to look
// again.
func (p *placer) choose(
	ctx context.Context, pod *corev1.Pod, open []*corev1.PersistentVolumeClaim,
) time.Duration {
	t, err := p.pods.reserveAll(ctx, podclaims.Pod{Namespace: pod.Namespace, Name: pod.Name,
		Claims: plan.PodClaims(pod)})
	if err != nil {
		return lag
	}
	if t.Refusal != nil {
		for _, of := range t.Claims {
			if v := t.Verdict(of.Placed()); plan.NodeOpen(of.Claim) {
				v.Action = plan.Wait
				p.reportClaim(of.Claim, v, of.Pool.Name)
			}
		}
		return placeAgain
	}
	took := "took the claim for this node, which pod " + pod.Name + " names"
	for _, claim := range open {
		if _, err := p.assign(ctx, claim, p.Node, took); err != nil {
			p.NodeRequest("claims of pods that name this node", err)
		}
	}
	return lag
}
