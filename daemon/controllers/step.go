package controllers

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
)

// Kind is a kind of work that the controllers do.
type Kind string

// The kinds: what the workers of each queue do with an item, and what a pool's loops do.
const (
	WorkClaim   Kind = "claim"   // one claim, by namespace, name and UID
	WorkContent Kind = "content" // one VolumeSnapshotContent, by name and UID; it is of no pool
	WorkVolume  Kind = "volume"  // one volume object, by name
	WorkPurge   Kind = "purge"   // one volume in the trash, by name
	WorkRecords Kind = "records" // all records of a pool
	WorkLook    Kind = "look"    // a probe of the pool
	WorkHeld    Kind = "held"    // room that is held for a claim too long, by the claim's UID
)

// Work is one piece of work in a pool, with its names as far as its kind needs them.
type Work struct {
	Kind                       Kind
	Pool, Namespace, Name, UID string
}

// Do does one piece of work to its end, as a worker of Run would, with the copy that it begins and
// the list of pods that it waits for, and returns when it has to be repeated if nothing changes. It
// takes nothing from the queues. Where Run runs, Do must not be called.
func (c *Controller) Do(ctx context.Context, work Work) (time.Duration, error) {
	w := c.workers[work.Pool]
	switch work.Kind {
	case WorkClaim:
		defer c.copies.going.Wait()
		for {
			after, err := c.claim(ctx, w, item{work.Namespace, work.Name, work.UID})
			if !c.pods.finder.Look(ctx) {
				return after, err
			}
		}
	case WorkContent:
		defer c.copies.going.Wait()
		return c.copies.content(ctx, item{name: work.Name, uid: work.UID})
	case WorkVolume:
		return c.volumes.volume(ctx, w, work.Name)
	case WorkPurge:
		return c.volumes.purge(ctx, w, work.Name)
	case WorkRecords:
		return 0, c.volumes.recheck(ctx, w)
	case WorkHeld:
		c.pods.end(work.UID)
		return 0, nil
	default:
		c.pools.look(ctx, w)
		return 0, nil
	}
}

// Begin learns which cluster the API server serves and looks at each pool, as a daemon does before
// its work begins. It reports whether both was done before ctx ended.
func (c *Controller) Begin(ctx context.Context) bool {
	if !c.identity.Identify(ctx) {
		return false
	}
	for name, w := range c.workers {
		if name != "" {
			c.pools.look(ctx, w)
		}
	}
	return ctx.Err() == nil
}

// End gives up the queues of a Controller that Run was never called for.
func (c *Controller) End() {
	for _, w := range c.workers {
		w.claims.ShutDown()
		w.volumes.ShutDown()
		w.purges.ShutDown()
	}
	if c.copies.contents != nil {
		c.copies.contents.ShutDown()
	}
}

// Memory is what a process knows of its work that is neither on the disk nor in the API, between
// two pieces of work. It is gone when the process ends.
type Memory struct {
	Begun       []string                   // steps that were begun and have not ended, sorted
	Unpublished map[string]string          // claims by UID whose directory has no object yet, and its pool
	Published   []string                   // claims by UID whose object was made just now, sorted
	Promised    map[string]capacity.Memory // by pool: the accounts that were counted
	Copies      map[string]error           // that ended and whose claims were not looked at since, by the UID of these; nil is success
	Held        []string                   // claims by UID for which room is held, sorted
	// Detached has the UIDs of volume objects whose directory on this node was taken away
	// (everynode.Directory.Memory).
	Detached map[string]bool
}

// Memory returns what the process knows.
func (c *Controller) Memory() Memory {
	m := Memory{Copies: c.copies.ended(), Begun: c.begun.Under(""), Held: c.pods.all(),
		Promised: map[string]capacity.Memory{}, Detached: map[string]bool{}}
	m.Unpublished, m.Published = c.inFlight.ends()
	for name, w := range c.workers {
		maps.Copy(m.Detached, w.everyNode.Memory())
		if account := w.disk.Account.Memory(); account.Known {
			m.Promised[name] = account
		}
	}
	return m
}

// Remember puts this in the place of what the process knows.
func (c *Controller) Remember(m Memory) {
	for _, key := range c.begun.Under("") {
		c.begun.End(key)
	}
	for _, key := range m.Begun {
		c.begun.Begin(key)
	}
	c.inFlight.remember(m.Unpublished, m.Published)
	for name, w := range c.workers {
		if w.Scope == plan.ScopeEveryNode {
			w.everyNode.Remember(m.Detached)
		}
		w.disk.Account.Remember(m.Promised[name])
	}
	c.pods.remember(m.Held, c.pods.reserved)
	c.expander = c.newExpander()
	c.copies.remember(m.Copies)
	c.unready = lately[*corev1.PersistentVolumeClaim]{}
	c.said, c.limiter = report.Dedup{}, report.Limiter{} // what was told is told again
	c.refusals = c.newRefusals()
}

// RememberLease puts this in the place of what the process knows of a shared pool's lease.
func (c *Controller) RememberLease(pool string, m leadership.Memory) {
	c.workers[pool].elector.Remember(m)
}
