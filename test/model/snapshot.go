package model

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
)

// There is one snapshot: a VolumeSnapshot with its VolumeSnapshotContent, of the volume of a claim
// with the first name. Claims with the second name can be made from it. The snapshot-controller's
// part is in snapshot_events.go.

// snapshotCell stands for the snapshot where a cell stands for a volume.
const snapshotCell = -2

const (
	snapshotUID    = "s-0"
	snapshotName   = "s"
	contentName    = "snapcontent-" + snapshotUID
	snapshotHandle = snapshotapi.HandlePrefix + snapshotUID
	snapshotClass  = "snapshots"
)

// content is the snapshot as the API server has it: what is not of the VolumeSnapshot is of its
// content.
type content struct {
	asked     bool // there is a VolumeSnapshot
	withdrawn bool // which is being deleted
	exists    bool
	of        uint8 // the cell of its volume
	retain    bool
	deleting  bool
	going     bool // its VolumeSnapshot is being deleted (snapshotapi.BeingDeleted)
	finalizer bool
	taken     bool // it has the node's name
	told      bool // its status says why there is no snapshot
	handle    bool // its status has the handle
	ready     bool
	version   uint8
}

// as is the content as the product has it, nil for none.
func (c content) as() *snapshotapi.Content {
	if !c.exists {
		return nil
	}
	volume, handle, class, ready := nameOf(int(c.of)), snapshotHandle, snapshotClass, c.ready
	made := &snapshotapi.Content{ObjectMeta: metav1.ObjectMeta{Name: contentName, UID: types.UID(contentName), ResourceVersion: fmt.Sprint(1 + c.version), Annotations: map[string]string{}}}
	made.Spec = snapshotapi.ContentSpec{
		SnapshotRef: snapshotapi.SnapshotRef{Namespace: namespace, Name: snapshotName, UID: snapshotUID}, DeletionPolicy: snapshotapi.PolicyDelete,
		Driver: plan.DefaultProvisioner, Class: &class, Source: snapshotapi.ContentSource{VolumeHandle: &volume},
	}
	if c.retain {
		made.Spec.DeletionPolicy = snapshotapi.PolicyRetain
	}
	if c.deleting {
		made.DeletionTimestamp = &metav1.Time{}
	}
	if c.going {
		made.Annotations[snapshotapi.BeingDeleted] = "yes"
	}
	if c.taken {
		made.Annotations[plan.NodeLabel] = nodeName(chosen)
	}
	if c.finalizer {
		made.Finalizers = []string{snapshotapi.Finalizer}
	}
	if c.handle || c.told {
		made.Status = &snapshotapi.ContentStatus{ReadyToUse: &ready}
	}
	if c.handle {
		made.Status.SnapshotHandle = &handle
	}
	return made
}

// contentOf is what the world keeps of a content that the product gives back. The volume's cell and
// the VolumeSnapshot are the server's.
func contentOf(of *snapshotapi.Content) content {
	c := content{exists: true, retain: of.Spec.DeletionPolicy != snapshotapi.PolicyDelete, deleting: of.DeletionTimestamp != nil, ready: of.Ready()}
	_, c.going = of.Annotations[snapshotapi.BeingDeleted]
	c.taken, c.finalizer = plan.NodeOfContent(of) != "", len(of.Finalizers) > 0
	c.told, c.handle = of.Status != nil, of.Status != nil && of.Status.SnapshotHandle != nil
	fmt.Sscan(of.ResourceVersion, &c.version)
	c.version--
	return c
}

// snapshotObject is the VolumeSnapshot, nil for none.
func (c content) snapshotObject() *snapshotapi.Snapshot {
	if !c.asked {
		return nil
	}
	name, ready := contentName, c.ready
	made := &snapshotapi.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: snapshotName, UID: snapshotUID}}
	if made.Status = (&snapshotapi.SnapshotStatus{ReadyToUse: &ready}); c.exists {
		made.Status.BoundContent = &name
	}
	if c.withdrawn {
		made.DeletionTimestamp = &metav1.Time{}
	}
	return made
}

// contents are the contents that the watch brought.
type contents struct{ p *product }

// Get is part of controller.Lister.
func (l contents) Get(name string) (*snapshotapi.Content, bool) {
	if l.p.begins {
		return nil, false
	}
	a, _ := l.p.ask(op{kind: cachedContent})
	return a.content.as(), name == contentName && a.content.exists
}

// List is part of controller.Lister.
func (l contents) List() (all []*snapshotapi.Content) {
	if one, is := l.Get(contentName); is {
		all = append(all, one)
	}
	return all
}

// Watched is part of controller.WatchedLister.
func (l contents) Watched() bool { return claims{p: l.p}.Watched() }

// snapshots is the API server's part of the group snapshot.storage.k8s.io.
type snapshots struct{ server }

// asks is server.ask with a conflict of a content.
func (s snapshots) asks(o op) (response, error) {
	a, err := s.ask(o)
	if apierrors.IsConflict(err) {
		err = apierrors.NewConflict(schema.GroupResource{Group: snapshotapi.GroupVersion.Group, Resource: "volumesnapshotcontents"}, contentName, err)
	}
	return a, err
}

// GetContent is part of controller.Snapshots, as are the following.
func (s snapshots) GetContent(context.Context, string) (*snapshotapi.Content, error) {
	a, err := s.asks(op{kind: getContent})
	return a.content.as(), err
}

func (s snapshots) GetSnapshot(context.Context, string, string) (*snapshotapi.Snapshot, error) {
	a, err := s.asks(op{kind: getSnapshot})
	return a.content.snapshotObject(), err
}

func (snapshots) GetSnapshotClass(context.Context, string) (*snapshotapi.Class, error) {
	return &snapshotapi.Class{ObjectMeta: metav1.ObjectMeta{Name: snapshotClass}, Driver: plan.DefaultProvisioner}, nil
}

func (s snapshots) TakeContent(_ context.Context, of *snapshotapi.Content, _ string) (*snapshotapi.Content, error) {
	c := contentOf(of)
	c.taken = true
	a, err := s.asks(op{kind: writeContent, content: c})
	return a.content.as(), err
}

func (s snapshots) SetContentStatus(_ context.Context, of *snapshotapi.Content, status snapshotapi.ContentStatus) error {
	c := contentOf(of)
	c.told, c.ready = true, *status.ReadyToUse
	c.handle = c.handle || status.SnapshotHandle != nil
	_, err := s.asks(op{kind: writeContent, content: c})
	return err
}

func (s snapshots) ClearContentStatus(_ context.Context, of *snapshotapi.Content) (*snapshotapi.Content, error) {
	c := contentOf(of)
	c.handle, c.ready = false, false
	a, err := s.asks(op{kind: writeContent, content: c})
	return a.content.as(), err
}

func (s snapshots) ReleaseContent(_ context.Context, of *snapshotapi.Content) (was bool, err error) {
	c := contentOf(of)
	c.finalizer = false
	a, err := s.asks(op{kind: releaseContent, content: c})
	return a.yes, err
}

// patchContent is Client.patchContent (daemon/kube) and what the API server does with its patch.
func (e *etcd) patchContent(to content) response {
	now := &e.snapshot
	if !now.exists {
		return response{fault: conflict} // a 404: the product does the same
	}
	if now.version != to.version {
		return response{fault: conflict}
	}
	was := *now
	now.taken, now.told, now.handle, now.ready, now.finalizer = to.taken, to.told, to.handle, to.ready, to.finalizer
	if *now != was {
		now.version = next(now.version)
	}
	now.goes()
	return response{content: e.snapshot}
}

// releaseContent is Client.ReleaseContent (daemon/kube): one that is gone is fine.
func (e *etcd) releaseContent(to content) response {
	if !e.snapshot.exists {
		return response{}
	}
	r := e.patchContent(to)
	r.yes = r.fault == fine
	return r
}

// goes: a content that is being deleted goes with its finalizer, and then the VolumeSnapshot, of
// which the snapshot-controller takes its own.
func (c *content) goes() {
	if c.exists && c.deleting && !c.finalizer {
		*c = content{asked: c.asked && !c.withdrawn, of: c.of}
	}
}

// dataSource is that of a claim that is made from the snapshot.
func dataSource() *corev1.TypedLocalObjectReference {
	group := snapshotapi.GroupVersion.Group
	return &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: snapshotapi.Kind, Name: snapshotName}
}

// What people and the snapshot-controller do (external-snapshotter v8.6.0, pkg/common-controller).

// snapshotTaken: people make a VolumeSnapshot, and the snapshot-controller its content.
func snapshotTaken(_ *worker, s *state, cell int) bool {
	c, exists := s.api.ownClaim(cell)
	v := s.api.volumes[cell]
	if cell/lives != 0 || !exists || !c.bound || !v.exists || s.api.snapshot.asked || s.api.snapshot.exists || !s.spend(snapshotsTaken) {
		return false
	}
	s.api.snapshot = content{asked: true, exists: true, of: uint8(cell), finalizer: true}
	return true
}

// snapshotDeleted: the snapshot-controller waits then for a claim that is being made from it, but
// not for one that comes meanwhile. So it may happen at any time.
func snapshotDeleted(_ *worker, s *state, _ int) bool {
	c := &s.api.snapshot
	if !c.asked || c.withdrawn || !s.spend(snapshotEnds) {
		return false
	}
	c.withdrawn = true
	return true
}

// contentFollows is what the snapshot-controller does with the content of a VolumeSnapshot that is
// being deleted.
func contentFollows(_ *worker, s *state, _ int) bool {
	c := &s.api.snapshot
	was := *c
	switch {
	case !c.withdrawn:
	case !c.exists:
		c.asked, c.withdrawn = false, false
	case !c.going:
		c.going, c.version = true, next(c.version)
	case c.retain && !c.deleting:
		c.asked, c.withdrawn = false, false
	case !c.deleting:
		c.deleting, c.version = true, next(c.version)
	}
	c.goes()
	return was != *c
}

// contentChanged is the event that people change the content, and not its VolumeSnapshot.
func contentChanged(b budget, change func(*content) bool) func(*worker, *state, int) bool {
	return func(_ *worker, s *state, _ int) bool {
		c := s.api.snapshot
		if !c.exists || !change(&c) || !s.spend(b) {
			return false
		}
		c.version = next(c.version)
		c.goes()
		s.api.snapshot = c
		return true
	}
}

// What people can change in a content, each false if they have done it already.
func deletedContent(c *content) bool  { was := c.deleting; c.deleting = true; return !was }
func retainedContent(c *content) bool { c.retain = !c.retain; return true }
func forcedContent(c *content) bool   { was := c.finalizer; c.finalizer = false; return was }

// contentsWork: there is something to do about the content, or it went while it was worked on.
func (w *worker) contentsWork(s *state, node int, view *etcd) bool {
	c := view.snapshot
	if c.exists {
		return !c.ready || c.deleting
	}
	_, copied := w.tree.memories.value(s.daemons[node].memory).Copies[contentName]
	return copied
}

// takes notes what is on the pool's disk of the snapshot now: that it is whole, and so has not
// gone.
func (s *state) takes(now onFile) {
	if now.snapshotWhole() {
		s.whole, s.snapshotGoes = true, false
	}
}

func (f onFile) snapshotWhole() bool { return f.recorded && f.place == inPool && !f.unnoted }

// goesWithData reports whether the content is to go, and its data with it.
func (c content) goesWithData() bool { return c.deleting && c.going && !c.retain }

// withdraws notes whether a daemon let the content go, by a request that was done, whatever
// response it gets.
func (s *state) withdraws(o op, before content) {
	released := o.kind == releaseContent && before.finalizer && !s.api.snapshot.finalizer
	s.snapshotGoes = s.snapshotGoes || released && before.goesWithData()
}

// restorable reports whether there is a snapshot from which a claim can be made.
func (s *state) restorable() bool {
	c := s.api.snapshot
	return c.asked && !c.withdrawn && c.ready && !s.snapshotGoes && !c.deleting
}

// snapshotJobs calls do with the work that a daemon has with the snapshot.
func (w *worker) snapshotJobs(s *state, node int, view *etcd, do func(j job, what string)) {
	if w.contentsWork(s, node, view) {
		do(job{controllers.WorkContent, nodePool, snapshotCell}, "takes up the snapshot's content")
	}
	if purgesWork(w.image(s, nodePool).snapshot) {
		do(job{controllers.WorkPurge, nodePool, snapshotCell}, "takes up the purge of the snapshot")
	}
}
