package controllers

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/ownership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

func (c *pools) newOwner(w *poolWorker) *ownership.Pool {
	return ownership.New(ownership.Options{
		Pool: w.Pool, Node: c.Node, Cluster: c.identity, Disk: w.disk, Deadline: c.Deadline, Log: c.Log,
		Host: c.Host, BoundNode: c.BoundNode, Holder: c.Holder,
		Object:  func() *corev1.Node { node, _ := c.Listers.Nodes.Get(c.Node); return node },
		Look:    func() { wake.Signal(w.kick) },
		Objects: func() []*corev1.PersistentVolume { return c.Listers.Volumes.List() },
		Beside:  func(v *corev1.PersistentVolume) bool { return c.beside(w, v) },
	})
}

// newElector makes the elector of a shared pool.
func (c *pools) newElector(w *poolWorker) *leadership.Elector {
	return leadership.New(leadership.Options{
		Pool: w.Name, Provisioner: c.Provisioner, Identity: c.Identity, Node: c.Node, Leases: c.API, Storage: storage{c, w},
		Events: c.Events, Log: c.Log, Clock: leadership.BootTime,
		Requested: func(err error) { c.NodeRequest("the lease of pool "+w.Name, err) },
		Resumed: func() {
			w.disk.Account.Forget() // other daemons made and removed volumes meanwhile
			wake.Signal(w.recheck)
			// Once more when a call of the leader before, which was paused in it, has certainly
			// ended: a directory that it made for a claim that went meanwhile is known to no other
			// process.
			time.AfterFunc(recheckAgain, func() { wake.Signal(w.recheck) })
			c.requeueVolumes(w)
			c.requeueClaims(w.Name)
		},
	})
}

// LeaseChanged is called with each lease that the watch brings, and with nil for one that was
// deleted.
func (c *pools) LeaseChanged(name string, lease *leadership.Lease) {
	for _, w := range c.workers {
		w.elector.Changed(name, lease)
	}
}

// Leader is the identity of the daemon that works in a shared pool: "" where there is none, and for
// other pools.
func (c *pools) Leader(pool string) string {
	if w := c.workers[pool]; w != nil {
		return w.elector.Leader()
	}
	return ""
}

// storage is a shared pool's storage on this host, as its elector sees it.
type storage struct {
	c *pools
	w *poolWorker
}

// Usable is part of leadership.Storage.
func (s storage) Usable() (bool, string) {
	state := s.c.Gate.State(s.w.Name)
	return state.Removable(), state.Report.Marker
}

// proofs is how many volumes are looked for before the storage is taken for another one. A restored
// server knows volumes that are gone from the disk.
const proofs = 64

// Proof is part of leadership.Storage: it looks for a record of one of the pool's volumes, for the
// same claim.
func (s storage) Proof(ctx context.Context) (proof leadership.Proof) {
	looked := 0
	h, _ := s.w.disk.Open(ctx)
	for _, v := range s.c.volumesIn(s.w.Name) {
		if v.Labels[plan.ScopeLabel] != plan.ScopeShared || looked == proofs {
			continue
		}
		looked, proof = looked+1, leadership.ProofElsewhere
		rec, err := h.Lookup(v.Name)
		switch {
		case rec != nil && v.Spec.ClaimRef != nil && rec.ClaimUID == string(v.Spec.ClaimRef.UID):
			return leadership.ProofHere
		case err != nil && !errors.Is(err, record.ErrDamaged):
			return leadership.ProofElsewhere // the pool moved, or hangs: its gate closes
		}
	}
	return proof
}
