package controller

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/report"
)

// keepLease looks after the lease of one pool until ctx ends.
func (c *Controller) keepLease(ctx context.Context, r *room) {
	for ctx.Err() == nil {
		timer := time.NewTimer(c.tend(ctx, r))
		select {
		case <-ctx.Done():
		case <-r.tenure.look:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// tend decides once about a lease and does it, and answers when to look again.
func (c *Controller) tend(ctx context.Context, r *room) time.Duration {
	if r.tenure.doubtful() && !c.readLease(ctx, r, r.tenure.read) {
		return time.Second
	}
	c.sayLost(r)
	facts := c.leaseFacts(ctx, r)
	action, after := plan.ForLease(facts)
	c.sayOther(r)
	if action == plan.LeaseStand {
		return after
	}
	began, silent := clock(), r.silent()
	wanted := c.wanted(r, facts, action)
	r.tenure.wants(wanted)
	now, err := c.API.WriteLease(ctx, wanted)
	if err == nil && now == nil { // it changed meanwhile; a watch that broke would never tell
		if c.readLease(ctx, r, r.tenure.refused) {
			c.sayLost(r)
		}
		return time.Second
	}
	if err != nil {
		c.leaseTrouble(r, err)
		return time.Second
	}
	c.said.Forget("lease/" + r.Name)
	r.tenure.wrote(now, action, began)
	if wrong := facts.Repair(); wrong != "" {
		c.sayLease(r, plan.LeaseRepaired(wanted.Name, wrong))
	}
	c.turned(r, action, silent)
	return after
}

// readLease reads the lease from the API and notes it.
func (c *Controller) readLease(ctx context.Context, r *room, note func(*plan.Lease)) bool {
	now, err := c.API.ReadLease(ctx, plan.LeaseName(c.Provisioner, r.Name))
	if err != nil {
		c.leaseTrouble(r, err)
		return false
	}
	note(now)
	return true
}

func (c *Controller) leaseFacts(ctx context.Context, r *room) plan.LeaseFacts {
	state := c.Gate.State(r.Name)
	f := r.tenure.facts()
	f.Me, f.Node, f.Able, f.Marker = c.Identity, c.Node, state.Removable(), state.Report.Marker
	if f.Vacant() {
		f.Proof = c.proof(ctx, r)
	}
	r.tenure.found(f)
	return f
}

// proofs is how many volumes are looked for before the storage is taken for another one. A restored
// server knows volumes that are gone from the disk.
const proofs = 64

// proof asks the disk whether it has volumes of the pool.
func (c *Controller) proof(ctx context.Context, r *room) (proof plan.Proof) {
	looked, identity := 0, c.Gate.State(r.Name).Identity()
	for _, v := range c.World.Volumes.List() {
		if v.Labels[plan.PoolLabel] != r.Name || v.Labels[plan.ScopeLabel] != plan.ScopeShared || looked == proofs {
			continue
		}
		looked, proof = looked+1, plan.ProofElsewhere
		rec, err := r.Disk.Lookup(ctx, identity, v.Name)
		switch {
		case rec != nil && v.Spec.ClaimRef != nil && rec.ClaimUID == string(v.Spec.ClaimRef.UID):
			return plan.ProofHere
		case err != nil && !errors.Is(err, record.ErrDamaged):
			return plan.ProofElsewhere // the pool moved, or hangs: its gate closes
		}
	}
	return proof
}

// wanted is the lease as an action leaves it. Every change of hands begins a new term. A daemon that works, or
// did until now, writes what it knows of the storage, and not what it read in the lease.
func (c *Controller) wanted(r *room, f plan.LeaseFacts, action plan.LeaseAction) plan.Lease {
	l := plan.Lease{}
	if f.Lease != nil {
		l = *f.Lease
	}
	l.Name, l.Pool = plan.LeaseName(c.Provisioner, r.Name), r.Name
	switch action {
	case plan.LeaseTake:
		l.Holder, l.Speaks, l.Marker = c.Identity, false, f.Marker
		l.Term = l.Term.Next(rand.Text())
	case plan.LeaseSpeak:
		l.Holder, l.Speaks = c.Identity, true
		l.Term = l.Term.Next(rand.Text())
	case plan.LeaseLeave, plan.LeaseRenew:
		if !l.Speaks {
			l.Marker = f.Worked
		}
	}
	if action == plan.LeaseLeave {
		l.Holder, l.Speaks = "", false
	}
	return l
}

// turned goes on with the work that a new role brings, and with what was left while renewals failed
// and this daemon was silent.
func (c *Controller) turned(r *room, action plan.LeaseAction, silent bool) {
	switch action {
	case plan.LeaseTake:
		c.Log.Info("works in the pool for all nodes from now on", "pool", r.Name)
	case plan.LeaseSpeak:
		c.Log.Info("speaks for the pool, in which no node can work", "pool", r.Name)
	case plan.LeaseLeave:
		c.Log.Info("leaves the work in the pool to another node", "pool", r.Name)
		return
	default:
		if !silent {
			return
		}
	}
	signal(r.recheck)
	c.requeueVolumes(r)
	c.requeueClaims(r.Name)
}

// sayOther tells once that the storage here is not that of the other nodes, when their holder had the time to
// write the lease anew.
func (c *Controller) sayOther(r *room) {
	r.tenure.mu.Lock()
	message, lasted := r.tenure.other, clock()-r.tenure.since
	r.tenure.mu.Unlock()
	if message == "" {
		c.said.Forget("other/" + r.Name)
		return
	}
	message = fmt.Sprintf("pool %s: %s", r.Name, message)
	if lasted >= 2*plan.LeaseRenewal && c.said.New("other/"+r.Name, message) {
		c.Log.Warn(message, "reason", plan.ReasonStorageMismatch, "pool", r.Name)
		c.Speaker.Event(report.Node(c.Node), corev1.EventTypeWarning, plan.ReasonStorageMismatch, message)
	}
}

// sayLost tells that the lease was taken away before its time.
func (c *Controller) sayLost(r *room) {
	r.tenure.mu.Lock()
	lost := r.tenure.lost
	r.tenure.lost = nil
	r.tenure.mu.Unlock()
	for _, message := range lost {
		c.sayLease(r, message)
	}
}

func (c *Controller) sayLease(r *room, message string) {
	message = fmt.Sprintf("pool %s: %s", r.Name, message)
	if c.said.New("overwritten/"+r.Name, message) {
		c.Log.Warn(message, "reason", plan.ReasonLeaseOverwritten, "pool", r.Name)
		c.Speaker.Event(report.Node(c.Node), corev1.EventTypeWarning, plan.ReasonLeaseOverwritten, message)
	}
}

// leaseTrouble tells what keeps this daemon from the lease. An API that is away is told by package kube.
func (c *Controller) leaseTrouble(r *room, err error) {
	if permanent(err) && c.said.New("lease/"+r.Name, err.Error()) {
		c.Log.Warn(err.Error(), "reason", plan.ReasonAPIRefused, "pool", r.Name)
		c.Speaker.Event(report.Node(c.Node), corev1.EventTypeWarning, plan.ReasonAPIRefused, err.Error())
	}
}

// resign gives up the leases that are held, when the daemon ends and its work has ended.
func (c *Controller) resign() {
	for _, r := range c.rooms {
		if r.tenure == nil {
			continue
		}
		f := r.tenure.facts()
		if f.Term == nil || f.Lease == nil || f.Lease.Term != *f.Term {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		if now, err := c.API.WriteLease(ctx, c.wanted(r, f, plan.LeaseLeave)); err == nil && now != nil {
			r.tenure.wrote(now, plan.LeaseLeave, 0)
		}
		cancel()
	}
}
