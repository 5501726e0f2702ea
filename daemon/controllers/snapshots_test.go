package controllers

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/treecopy"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Snapshots on a real disk are tested in test/e2e. Here are the steps for one content, and what is
// left when one of them fails.

// album is an API server with one content, and a disk with records. It notes in one journal what is
// written to either.
type album struct {
	disk.Storage
	content *snapshotapi.Content // nil: it is gone
	class   *snapshotapi.Class
	records map[string]record.Record
	fails   map[string]error // by the step
	lost    bool             // no response comes to a release
	forced  bool             // another client released it just before
	done    journal
}

func (a *album) step(name string) error {
	a.done.note(name)
	return a.fails[name]
}

func (a *album) GetContent(context.Context, string) (*snapshotapi.Content, error) {
	return a.content, a.fails["content"]
}

func (a *album) GetSnapshot(context.Context, string, string) (*snapshotapi.Snapshot, error) {
	return nil, nil
}

func (a *album) GetSnapshotClass(context.Context, string) (*snapshotapi.Class, error) {
	return a.class, a.fails["class"]
}

func (a *album) TakeContent(_ context.Context, of *snapshotapi.Content, node string) (*snapshotapi.Content, error) {
	taken := of.DeepCopy()
	taken.Annotations[plan.NodeLabel] = node
	return taken, a.step("taken by " + node)
}

func (a *album) SetContentStatus(_ context.Context, of *snapshotapi.Content, s snapshotapi.ContentStatus) error {
	did := "no error"
	switch {
	case s.Error != nil:
		did = "refused"
	case s.SnapshotHandle != nil:
		did = "ready " + *s.SnapshotHandle
	}
	err := a.step(did)
	if err == nil {
		of.Status = &s
	}
	return err
}

func (a *album) ClearContentStatus(_ context.Context, of *snapshotapi.Content) (*snapshotapi.Content, error) {
	return of, a.step("status cleared")
}

func (a *album) ReleaseContent(_ context.Context, of *snapshotapi.Content) (bool, error) {
	err := a.step("released")
	if a.lost {
		return false, errAway
	}
	return err == nil && !a.forced, err
}

func (a *album) Lookup(_ context.Context, _ mounts.Identity, name string) (record.Record, error) {
	if r, is := a.records[name]; is {
		return r, a.fails["lookup "+name]
	}
	if err := record.CheckPV(name); err != nil {
		return record.Record{}, err
	}
	return record.Record{}, volume.ErrNotRecorded
}

func (a *album) List(context.Context, mounts.Identity) (i volume.Inventory, err error) {
	for _, r := range a.records {
		i.Volumes = append(i.Volumes, r)
	}
	return i, nil
}

func (a *album) Create(_ context.Context, _ mounts.Identity, s volume.Spec) (string, error) {
	s.Copied(treecopy.Copied{Sockets: 2})
	err := a.step("copy " + s.PV + " of " + s.Origin.Name)
	if err == nil {
		s.Record.Place = record.InPool
		a.records[s.PV] = s.Record
	}
	return s.Directory, err
}

func (a *album) Published(context.Context, mounts.Identity, string) error { return a.step("published") }
func (a *album) Retain(context.Context, mounts.Identity, string) error    { return a.step("retain") }
func (a *album) Trash(context.Context, mounts.Identity, string) error     { return a.step("trash") }
func (a *album) Discard(context.Context, mounts.Identity, string) error   { return a.step("discard") }
func (a *album) PutBack(context.Context, mounts.Identity, string, string) error {
	return a.step("put back")
}
func (a *album) Undo(context.Context, mounts.Identity, string) error { return a.step("undo") }

const handle = "snapshot-u"

// snapshotting is a controller with a content whose snapshot of the volume pvc-1 is to be made in
// the pool "fast".
func snapshotting(t *testing.T) (*Controller, *poolWorker, *album, *audience) {
	of, class := "pvc-1", "live"
	a := &album{
		content: &snapshotapi.Content{
			ObjectMeta: metav1.ObjectMeta{Name: "snapcontent-u", UID: "content", Finalizers: []string{snapshotapi.Finalizer}, Annotations: map[string]string{}},
			Spec: snapshotapi.ContentSpec{
				Driver: "p", DeletionPolicy: snapshotapi.PolicyDelete, Class: &class,
				SnapshotRef: snapshotapi.SnapshotRef{Namespace: "ns", Name: "s", UID: "u"}, Source: snapshotapi.ContentSource{VolumeHandle: &of},
			},
		},
		class: &snapshotapi.Class{}, records: map[string]record.Record{of: {PV: of, Place: record.InPool, Requested: 1 << 20}}, fails: map[string]error{},
	}
	bound := &corev1.PersistentVolume{}
	bound.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "db"}
	c, w := stand(&api{volume: bound}, a)
	heard := &audience{}
	c.Provisioner, c.Snapshots, c.Events, c.contents = "p", a, heard, newQueue()
	c.refusals.Events = heard
	t.Cleanup(func() { endAll(c) })
	c.Contents = one[*snapshotapi.Content]{a.content}
	w.Snapshots = plan.SnapshotsLive
	return c, w, a, heard
}

// contentChange makes another case of that.
type contentChange func(c *Controller, w *poolWorker, a *album)

// whole has the disk keep the snapshot, in this place.
func whole(place record.Place) contentChange {
	return func(_ *Controller, _ *poolWorker, a *album) {
		a.records[handle] = record.Record{PV: handle, Kind: record.Snapshot, Place: place}
	}
}

// unfinished has the snapshot's record say that it may not be whole.
func unfinished(_ *Controller, _ *poolWorker, a *album) {
	r := a.records[handle]
	r.Unpublished = true
	a.records[handle] = r
}

// going is the content when its VolumeSnapshot is deleted.
func going(_ *Controller, _ *poolWorker, a *album) {
	now := metav1.Now()
	a.content.DeletionTimestamp, a.content.Annotations[snapshotapi.BeingDeleted] = &now, "yes"
	a.content.Status = &snapshotapi.ContentStatus{}
}

// ready is the content of which this node has said that its snapshot is ready.
func ready(_ *Controller, _ *poolWorker, a *album) {
	yes, named := true, handle
	a.content.Status = &snapshotapi.ContentStatus{ReadyToUse: &yes, SnapshotHandle: &named}
	a.content.Annotations[plan.NodeLabel] = "node-a"
}

func retain(_ *Controller, _ *poolWorker, a *album) {
	a.content.Spec.DeletionPolicy = snapshotapi.PolicyRetain
}

// gone has no pool of this node have the snapshot, nor its volume.
func gone(_ *Controller, _ *poolWorker, a *album) { clear(a.records) }

// meanwhile has the API server keep what is changed next apart from what is watched.
func meanwhile(_ *Controller, _ *poolWorker, a *album) { a.content = a.content.DeepCopy() }

func ofContent(change func(of *snapshotapi.Content)) contentChange {
	return func(_ *Controller, _ *poolWorker, a *album) { change(a.content) }
}

func ofAlbum(change func(a *album)) contentChange {
	return func(_ *Controller, _ *poolWorker, a *album) { change(a) }
}

// givenAway has an administrator have given the volume to another namespace.
func givenAway(c *Controller, _ *poolWorker, _ *album) {
	now := &corev1.PersistentVolume{}
	now.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "other", Name: "db"}
	c.API = &api{volume: now}
}

func off(_ *Controller, w *poolWorker, _ *album) { w.Snapshots = plan.SnapshotsOff }

// saidEnough is a namespace about which nothing more may be said now.
func saidEnough(c *Controller, _ *poolWorker, _ *album) {
	for c.mayWarn("ns") {
	}
}

var (
	errIO        = errors.New("i/o error")
	errForbidden = error(apierrors.NewForbidden(schema.GroupResource{}, "snapcontent-u", errors.New("it is another node's")))
	changed      = error(apierrors.NewConflict(schema.GroupResource{Resource: "volumesnapshotcontents"}, "snapcontent-u", errors.New("it is another")))
)

const (
	take       = "taken by node-a"
	letGoSteps = ", status cleared, released"
	removal    = take + ", trash" + letGoSteps + ", discard"
)

// contentCases are what is done about one content, in which order, and how the event of its
// VolumeSnapshot begins.
var contentCases = map[string]struct {
	changes []contentChange
	done    string
	event   string
}{
	"whole": {[]contentChange{whole(record.InPool)}, take + ", published, ready snapshot-u", plan.ReasonSnapshotReady + ": snapshot snapshot-u is on node node-a in pool fast"},
	"whole, and taken": {[]contentChange{whole(record.InPool), ofContent(func(of *snapshotapi.Content) { of.Annotations[plan.NodeLabel] = "node-a" })},
		"published, ready snapshot-u", plan.ReasonSnapshotReady},
	"another driver's": {[]contentChange{ofContent(func(of *snapshotapi.Content) { of.Spec.Driver = "q" })}, "", ""},
	"another node's":   {[]contentChange{ofAlbum(func(a *album) { delete(a.records, "pvc-1") })}, "", ""},
	"a pool without":   {[]contentChange{off}, take + ", refused", plan.ReasonSnapshotFailed + ": pool fast makes no snapshots"},
	"no class":         {[]contentChange{ofAlbum(func(a *album) { a.class = nil })}, take + ", refused", plan.ReasonSnapshotFailed + `: there is no VolumeSnapshotClass "live"`},
	"a class that cannot be read": {[]contentChange{ofAlbum(func(a *album) { a.fails["class"] = errAway })},
		take + ", refused", plan.ReasonAPIRefused + ": away"},
	"a volume in the trash": {[]contentChange{ofAlbum(func(a *album) { a.records["pvc-1"] = record.Record{PV: "pvc-1", Place: record.InTrash} })},
		take + ", refused", plan.ReasonSnapshotFailed + ": the volume is not in the pool"},
	"too much to say": {[]contentChange{off, saidEnough}, take, ""},
	"given to another claim": {[]contentChange{givenAway}, take + ", refused",
		plan.ReasonSnapshotFailed + ": the volume is another claim's than when"},
	"given to another claim while it was copied": {
		[]contentChange{whole(record.InPool), unfinished, givenAway}, take + ", undo, refused", plan.ReasonSnapshotFailed},
	"goes, retained":      {[]contentChange{whole(record.InPool), going, retain}, take + ", retain, released", ""},
	"goes, whole":         {[]contentChange{whole(record.InPool), going}, removal, ""},
	"goes, in the trash":  {[]contentChange{whole(record.InTrash), going}, removal, ""},
	"goes, no directory":  {[]contentChange{whole(record.Nowhere), going}, removal, ""},
	"goes, half made":     {[]contentChange{whole(record.InPool), unfinished, going}, take + ", undo" + letGoSteps + ", discard", ""},
	"goes, in staging":    {[]contentChange{whole(record.InStaging), unfinished, going}, take + ", undo" + letGoSteps + ", discard", ""},
	"goes, being emptied": {[]contentChange{whole(record.Emptying), going}, take + letGoSteps + ", discard", ""},
	"goes, in the trash, and is to be kept": {[]contentChange{whole(record.InTrash), going, retain}, "put back", plan.ReasonPutBack + ": node node-a: the data of the " +
		"snapshot was being deleted, and its deletion policy is Retain now; it was restored"},
	"released by others, in the trash, and is to be kept": {[]contentChange{whole(record.InTrash), going, retain, ofContent(func(of *snapshotapi.Content) { of.Finalizers = nil })},
		"put back", plan.ReasonPutBack},
	"goes, and another client lets it go": {[]contentChange{whole(record.InPool), going, ofAlbum(func(a *album) { a.forced = true })}, take + ", trash" + letGoSteps, ""},
	"stays, and is in the trash":          {[]contentChange{whole(record.InTrash), ready}, "put back", plan.ReasonPutBack + ": node node-a: the data of the snapshot was being deleted, and it is to stay"},
	"stays, and its files are going":      {[]contentChange{whole(record.Emptying), ready}, "", plan.ReasonSnapshotLost + ": node node-a: its directory is in the trash, and its files are going"},
	"ready, and gone":                     {[]contentChange{ready, gone}, "", plan.ReasonSnapshotLost + ": node node-a: its data is gone from this node"},
	"ready by another node": {[]contentChange{ready, ofContent(func(of *snapshotapi.Content) { of.Annotations[plan.NodeLabel] = "thief" })}, "",
		plan.ReasonSnapshotLost + `: node node-a: it is said to be ready on node "thief", and this node, which has its volume, made none`},
	"taken by another node, which the policies let no daemon take back": {[]contentChange{ofContent(func(of *snapshotapi.Content) { of.Annotations[plan.NodeLabel] = "thief" }),
		ofAlbum(func(a *album) { a.fails[take] = errForbidden })}, take, plan.ReasonSnapshotFailed + `: node thief has taken its VolumeSnapshotContent "snapcontent-u", and node node-a has`},
	"not ready, and neither is here any more": {[]contentChange{ready, gone, ofContent(func(of *snapshotapi.Content) { of.Status = nil })},
		"refused", plan.ReasonSnapshotFailed + ": node node-a has taken it, and has neither"},
	"goes, and the pool cannot be read any more": {[]contentChange{whole(record.Emptying), going,
		ofAlbum(func(a *album) { a.fails["lookup pvc-1"] = errIO })}, "", ""},
	"the pool cannot be read any more": {[]contentChange{whole(record.InPool), ofAlbum(func(a *album) { a.fails["lookup pvc-1"] = errIO })}, "", ""},
	"a volume whose record is damaged": {[]contentChange{whole(record.InPool), ofAlbum(func(a *album) { a.fails["lookup pvc-1"] = record.ErrDamaged })},
		take + ", published, ready snapshot-u", plan.ReasonSnapshotReady},
	"goes, never made": {[]contentChange{going}, take + letGoSteps, ""},
	"goes, and its VolumeSnapshot stays": {[]contentChange{whole(record.InPool), going,
		ofContent(func(of *snapshotapi.Content) { delete(of.Annotations, snapshotapi.BeingDeleted) })},
		take + ", refused", plan.ReasonSnapshotFailed + ": its VolumeSnapshotContent"},
	"gone meanwhile":    {[]contentChange{whole(record.InPool), ofAlbum(func(a *album) { a.content = nil })}, "", ""},
	"another meanwhile": {[]contentChange{whole(record.InPool), meanwhile, ofContent(func(of *snapshotapi.Content) { of.UID = "x" })}, "", ""},
	"goes meanwhile":    {[]contentChange{whole(record.InPool), meanwhile, going}, removal, ""},
}

func TestContents(t *testing.T) {
	for name, c := range contentCases {
		synctest.Test(t, func(t *testing.T) { // its clock stands still
			ctl, w, a, heard := snapshotting(t)
			for _, change := range c.changes {
				change(ctl, w, a)
			}
			if _, err := ctl.content(t.Context(), item{name: "snapcontent-u", uid: "content"}); err != nil && !errors.Is(err, errForbidden) || a.done.String() != c.done {
				t.Errorf("%s: did %q, %v, want %q", name, a.done.String(), err, c.done)
			}
			if said := strings.Join(heard.of("u"), "; "); !strings.HasPrefix(said, c.event) || (said == "") != (c.event == "") {
				t.Errorf("%s: events %q, want %q", name, said, c.event)
			}
		})
	}
}

// A content of which no pool can have a record, because its handle is no name, goes as one goes of
// which none has. It stayed for ever.
func TestContentOfNoName(t *testing.T) {
	for name, source := range map[string]func(of *snapshotapi.Content, named *string){
		"snapshot": func(of *snapshotapi.Content, named *string) {
			of.Spec.Source = snapshotapi.ContentSource{SnapshotHandle: named}
		},
		"volume": func(of *snapshotapi.Content, named *string) { of.Spec.Source.VolumeHandle = named },
	} {
		for _, named := range []string{"unknown", "../unknown", "a/b", ".hostpath-provisioner", strings.Repeat("n", 4096)} {
			synctest.Test(t, func(t *testing.T) {
				c, w, a, _ := snapshotting(t)
				source(a.content, &named)
				i := item{name: "snapcontent-u", uid: "content"}
				if _, err := c.content(t.Context(), i); err != nil || a.done.String() != "" {
					t.Errorf("%s %.20q stays: did %q, %v", name, named, a.done.String(), err)
				}
				going(c, w, a)
				for range 2 {
					if _, err := c.content(t.Context(), i); err != nil {
						t.Error(err)
					}
					time.Sleep(10 * time.Minute) // of the bubble's clock: another node may have it
				}
				if a.done.String() != take+letGoSteps {
					t.Errorf("%s %.20q goes: did %q, want %q", name, named, a.done.String(), take+letGoSteps)
				}
			})
		}
	}
}

// A step that fails is the last one: what follows it would take away what the next try needs.
func TestContentStepsThatFail(t *testing.T) {
	for step, want := range map[string]string{
		"taken by node-a": take, "status cleared": take + ", trash, status cleared", "released": take + ", trash" + letGoSteps,
		"trash": take + ", trash", "discard": removal, "content": "",
	} {
		for _, failed := range []error{errIO, changed} {
			c, w, a, _ := snapshotting(t)
			whole(record.InPool)(c, w, a)
			going(c, w, a)
			a.fails[step] = failed
			after, err := c.content(t.Context(), item{name: "snapcontent-u", uid: "content"})
			if a.done.String() != want || w.purges.Len() > 0 {
				t.Errorf("%s fails: did %q, want %q; %d are purged", step, a.done.String(), want, w.purges.Len())
			}
			if again := failed == changed; again != (err == nil && after == contentAgain) {
				t.Errorf("%s fails with %v: again after %s, %v", step, failed, after, err)
			}
		}
	}
}

// What is refused is told once, and again after the status could not be written.
func TestRefusalIsToldOnce(t *testing.T) {
	c, w, a, heard := snapshotting(t)
	w.Snapshots, a.content.Annotations[plan.NodeLabel] = plan.SnapshotsOff, "node-a"
	look := func() error {
		_, err := c.content(t.Context(), item{name: "snapcontent-u", uid: "content"})
		return err
	}
	a.fails["refused"] = errAway
	if err := look(); !errors.Is(err, errAway) {
		t.Error(err)
	}
	delete(a.fails, "refused")
	for range 3 {
		if err := look(); err != nil {
			t.Error(err)
		}
	}
	if a.done.String() != "refused, refused" || len(heard.of("u")) != 2 {
		t.Errorf("did %q, said %q", a.done.String(), heard.of("u"))
	}
}

// endAll ends what a Controller has begun: a queue has a goroutine until it is shut down.
func endAll(c *Controller) { c.End() }

// A copy is made beside the worker, and its content comes to one again when it ended.
func TestSnapshotIsCopied(t *testing.T) {
	full := &capacity.FullError{}
	for name, c := range map[string]struct {
		failed error
		after  time.Duration
		event  string
		fails  bool
	}{
		"made": {nil, 0, plan.ReasonSnapshotReady, false}, "the disk fails": {errIO, 0, plan.ReasonSnapshotFailed + ": node node-a: i/o error", true},
		"no reflinks": {treecopy.ErrNoReflink, copyAgain, plan.ReasonSnapshotFailed, false}, "no space": {syscall.ENOSPC, copyAgain, plan.ReasonSnapshotFailed, false},
		"an unknown writer": {treecopy.ErrWritten, copyAgain, plan.ReasonSnapshotFailed, false}, "no pause": {volume.ErrPause, copyAgain, plan.ReasonSnapshotFailed, false},
		"too many files": {treecopy.ErrLimit, copyAgain, plan.ReasonSnapshotFailed, false}, "the pool is full": {full, 0, plan.ReasonNotEnoughSpace, true},
		"remains of another copy": {volume.ErrPlace, lag, "", false}, "the pool moved": {volume.ErrDirectoryReplaced, lag, "", false}, "canceled": {context.Canceled, lag, "", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctl, w, a, heard := snapshotting(t)
			a.content.Annotations[plan.NodeLabel] = "node-a"
			a.fails["copy snapshot-u of pvc-1"] = c.failed
			i := item{name: "snapcontent-u", uid: "content"}
			if after, err := ctl.content(t.Context(), i); err != nil || after != 0 {
				t.Errorf("%s: at first again after %s, %v", name, after, err)
			}
			synctest.Wait()
			if ctl.contents.Len() != 1 {
				t.Errorf("%s: %d contents come again", name, ctl.contents.Len())
			}
			after, err := ctl.content(t.Context(), i)
			if (err != nil) != c.fails || after != c.after || (w.purges.Len() > 0) != (c.failed != nil) {
				t.Errorf("%s: again after %s, %v; %d are purged", name, after, err, w.purges.Len())
			}
			if said := strings.Join(heard.of("u"), "; "); !strings.HasPrefix(said, c.event) || (said == "") != (c.event == "") || c.failed == nil && !strings.Contains(said, "2 sockets") {
				t.Errorf("%s: said %q", name, said)
			}
		})
	}
}

// A piece of work with a content ends when the copy that it begins has ended, and the next one
// publishes the snapshot.
func TestDoContent(t *testing.T) {
	c, _, a, _ := snapshotting(t)
	a.content.Annotations[plan.NodeLabel] = "node-a"
	for _, want := range []string{"copy snapshot-u of pvc-1", "copy snapshot-u of pvc-1, published, ready snapshot-u"} {
		after, err := c.Do(t.Context(), Work{Kind: WorkContent, Name: "snapcontent-u", UID: "content"})
		if err != nil || after != 0 || a.done.String() != want {
			t.Errorf("did %q, %v, again after %s; want %q", a.done.String(), err, after, want)
		}
	}
}
