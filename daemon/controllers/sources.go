package controllers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
)

// sourceFacts reads the claim that a clone is made of, and its volume, or looks for the snapshot.
func (c *copies) sourceFacts(ctx context.Context, f plan.ClaimFacts) (*plan.SourceFacts, error) {
	if plan.IsRestore(f.Claim) {
		taken, err := c.snapshotFacts(ctx, f)
		return &plan.SourceFacts{Taken: taken}, err
	}
	claim, err := c.readSource(ctx, f.Claim.Namespace, plan.SourceOfCopy(f.Claim))
	if err != nil || claim == nil || claim.Spec.VolumeName == "" {
		return &plan.SourceFacts{Claim: claim}, err
	}
	from := &plan.SourceFacts{Claim: claim}
	if from.Volume, from.Asked = c.Listers.Volumes.Get(claim.Spec.VolumeName); from.Asked || !plan.SourceVolumeMatters(f) {
		return from, nil
	}
	from.Volume, err = c.API.GetVolume(ctx, claim.Spec.VolumeName)
	from.Asked = err == nil
	return from, err
}

// snapshotFacts looks for the snapshot that a claim is to be made from. The VolumeSnapshot is asked
// for where this node has a snapshot for one of its name, and where it is this node's to say what
// is wrong.
func (c *copies) snapshotFacts(ctx context.Context, f plan.ClaimFacts) (*plan.SnapshotFacts, error) {
	s := &plan.SnapshotFacts{}
	namespace, name := f.Claim.Namespace, plan.SourceOfCopy(f.Claim)
	for _, one := range c.Contents.List() {
		if s.Record == nil && one.Spec.SnapshotRef.Namespace == namespace && one.Spec.SnapshotRef.Name == name {
			c.lookForSnapshot(ctx, s, one)
		}
	}
	if s.Record == nil && !plan.SourceVolumeMatters(f) {
		return s, nil
	}
	var err error
	if s.Snapshot, err = c.Snapshots.GetSnapshot(ctx, namespace, name); err != nil {
		return s, err
	}
	s.Asked = true
	if bound, is := c.boundContent(s.Snapshot); is && bound != s.Content {
		c.lookForSnapshot(ctx, s, bound)
	}
	return s, nil
}

// boundContent is the content of a VolumeSnapshot, if it is one of the daemon's driver.
func (c *copies) boundContent(of *snapshotapi.Snapshot) (*snapshotapi.Content, bool) {
	if of == nil || of.Status == nil || of.Status.BoundContent == nil {
		return nil, false
	}
	return c.Contents.Get(*of.Status.BoundContent)
}

// lookForSnapshot looks for a content's snapshot in this node's pools.
func (c *copies) lookForSnapshot(ctx context.Context, s *plan.SnapshotFacts, of *snapshotapi.Content) {
	s.Content, s.Record, s.Pool, s.Source = of, nil, "", false
	s.Unread = c.eachPool(ctx, func(w *poolWorker, h disk.Handle) (found bool, err error) {
		s.Record, err = h.LookupSnapshot(of.Handle())
		if s.Record != nil {
			s.Pool = w.Name
		} else if volume := of.Spec.Source.VolumeHandle; err == nil && volume != nil && of.Ready() {
			from, _ := h.Lookup(*volume)
			s.Source = s.Source || from != nil && from.Place == record.InPool
		}
		return s.Record != nil, err
	})
}

// eachPool looks into this node's pools until one has what is looked for. It returns why one could
// not be looked into, "" if that does not matter.
func (c *copies) eachPool(ctx context.Context, look func(w *poolWorker, h disk.Handle) (found bool, err error)) (unread string) {
	for _, p := range c.configured {
		if !p.OfOneNode() {
			continue
		}
		w := c.workers[p.Name]
		h, ok := w.disk.Open(ctx)
		if !ok {
			_, why := h.State.Closed()
			unread = "pool " + p.Name + ": " + why
			continue
		}
		found, err := look(w, h)
		switch {
		case found:
			return ""
		case errors.Is(err, record.ErrName): // no pool has a record of what people wrote into the handle
		case err != nil:
			unread = err.Error()
		}
	}
	return unread
}

// origin is what a copy is made of.
func origin(f plan.ClaimFacts) record.Origin {
	switch {
	case f.From == nil:
	case f.From.Taken != nil && f.From.Taken.Record != nil:
		return record.Origin{Kind: record.Snapshot, Name: f.From.Taken.Record.PV, UID: f.From.Taken.Record.ClaimUID}
	case f.From.Volume != nil:
		return record.Origin{Name: f.From.Volume.Name, UID: string(f.From.Claim.UID)}
	}
	return record.Origin{}
}

// fully reports whether the copy for a claim has its data copied, and does not share it with its
// source.
func fully(f plan.ClaimFacts) bool {
	if plan.IsRestore(f.Claim) {
		return f.Pool.Snapshots == plan.SnapshotsCopy
	}
	return f.Pool.Clones == plan.ClonesCopy
}

// unreadyFor is for how long a source is not read again: less than until a clone that waits for it
// is looked at again (plan.ForClaim).
const unreadyFor = 4 * time.Second

// readSource returns a claim as the API server has it now, if it has a volume, and else as it had it
// within unreadyFor: any number of clones can wait for one claim. One that does not exist is nil.
func (c *copies) readSource(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	key := namespace + "/" + name
	if known, is := c.unready.get(key); is {
		return known, nil
	}
	claim, err := c.API.GetClaim(ctx, namespace, name)
	if err == nil && (claim == nil || claim.Spec.VolumeName == "") {
		c.unready.keep(key, claim, unreadyFor)
	}
	return claim, err
}

// turns lets one copy of a pool go on at a time. The namespaces of those that wait take turns, so
// that many copies of one do not hold up another's. The zero value is ready for use.
type turns struct {
	mu      sync.Mutex
	busy    bool
	waiting []*turn        // in the order in which they came
	had     map[string]int // by namespace: the number of its last turn, while copies wait
	count   int
}

type turn struct {
	namespace string
	comes     chan struct{} // closed when it is this one's
}

// take waits for a turn. Each one that was taken is to be given back.
func (t *turns) take(ctx context.Context, namespace string) error {
	one := &turn{namespace, make(chan struct{})}
	t.mu.Lock()
	t.waiting = append(t.waiting, one)
	t.next()
	t.mu.Unlock()
	select {
	case <-one.comes:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, one); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	} else { // it came meanwhile
		t.busy = false
		t.next()
	}
	return ctx.Err()
}

// give gives a turn back.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy = false
	t.next()
}

// next begins a turn if none is: that of the namespace which had none for longest.
func (t *turns) next() {
	switch {
	case t.busy:
		return
	case len(t.waiting) == 0:
		t.had = nil
		return
	}
	next := slices.MinFunc(t.waiting, func(a, b *turn) int { return t.had[a.namespace] - t.had[b.namespace] })
	t.waiting = slices.DeleteFunc(t.waiting, func(one *turn) bool { return one == next })
	t.busy, t.count = true, t.count+1
	put(&t.had, next.namespace, t.count)
	close(next.comes)
}
