package everynode

import (
	"context"
	"errors"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/begun"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// API is the part of Kubernetes that is used. An object that does not exist is nil without an
// error.
type API interface {
	GetVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
	// WriteTombstone writes one; one that is there already stays, and first is false. But Retain
	// replaces Delete.
	WriteTombstone(ctx context.Context, t plan.Tombstone) (first bool, err error)
	// ReleaseFinalizer takes our finalizer off an object whose policy and claim are still as given,
	// and that is still released if it was; else it returns a conflict. It returns the object as it
	// is then, nil if it is gone. RemoveVolume deletes it besides.
	ReleaseFinalizer(ctx context.Context, pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error)
	RemoveVolume(ctx context.Context, pv *corev1.PersistentVolume) error
}

// Metrics counts. It never blocks.
type Metrics interface {
	Volume(pool, reason string)
	Part(pool, reason string)
}

// Options are a Directory's. All fields are needed.
type Options struct {
	plan.Self
	Pool  string // its name, "" for volumes of pools that are not configured here
	Scope string // of the pool here
	Disk  *disk.Pool
	API   API
	// Watched returns a volume as the watch brought it last, and PoolOf the pool with the settings
	// of its class.
	Watched func(name string) (*corev1.PersistentVolume, bool)
	PoolOf  func(pv *corev1.PersistentVolume) plan.Pool
	// Nodes is how many nodes the cluster has, and InFlight reports whether a claim is being
	// provisioned here.
	Nodes    func(ctx context.Context) int
	InFlight func(claimUID string) bool
	// Compare looks at a record as at each that has no watched object. Purge removes the files of a
	// directory that is out of the way, in the background, and LookAtPool has the pool checked again.
	Compare    func(ctx context.Context, h disk.Handle, rec record.Record) error
	Purge      func(pv string)
	LookAtPool func()
	// DiskFailed reports an error of the disk about a volume, and returns it.
	DiskFailed func(pv *corev1.PersistentVolume, err error) error
	Events     report.Events
	Metrics    Metrics
	Log        *slog.Logger
}

// Directory looks after this node's directories in one pool.
type Directory struct {
	Options
	said     report.Dedup // by the UID of the object
	detached begun.Set    // directories that this process took away, by the UID of the object
}

// New makes a Directory. It touches nothing.
func New(o Options) *Directory { return &Directory{Options: o} }

// Look looks at a volume of scope every-node. done is false if the volume is none, or its object is
// released or being deleted: then it is looked at like any other volume, and Detach takes the
// directory away.
func (d *Directory) Look(ctx context.Context, name string) (done bool, after time.Duration, err error) {
	pv, watched := d.Watched(name)
	switch {
	case !watched && d.Scope == plan.ScopeEveryNode:
		after, err = d.lookWithoutObject(ctx, name)
		return true, after, err
	case !watched || !plan.OnEveryNode(pv):
		return false, 0, nil
	case !plan.InUse(pv):
		wait := d.removalDelay(ctx, pv)
		return wait > 0, wait, nil // what other nodes change in the object meanwhile costs no request
	}
	after, err = d.ensure(ctx, pv)
	return true, after, err
}

// Forget forgets an object that is gone.
func (d *Directory) Forget(pv *corev1.PersistentVolume) {
	d.said.Forget(string(pv.UID))
	d.detached.End(string(pv.UID))
}

// Attached notes that the directory was put back.
func (d *Directory) Attached(pv *corev1.PersistentVolume) { d.detached.End(string(pv.UID)) }

// ensure makes this node's directory of a volume that is in use, or reports why it cannot.
func (d *Directory) ensure(ctx context.Context, pv *corev1.PersistentVolume) (time.Duration, error) {
	if d.Pool == "" {
		return 0, nil // this node has no pool of that name, and no directory of its volumes
	}
	h, _ := d.Disk.Open(ctx)
	facts, err := d.gather(h, pv)
	if err != nil {
		return 0, d.failed(pv, err)
	}
	verdict := plan.ForPart(facts)
	switch {
	case verdict.Action == plan.Provision:
		if err := d.make(h, pv, facts); err != nil {
			return 0, d.failed(pv, err)
		}
		d.reportMade(pv)
	case verdict.Action == plan.Expand:
		if err := d.expand(h, pv); errors.As(err, new(*capacity.FullError)) {
			return 0, err // another volume was promised the space meanwhile: decided again
		} else if err != nil {
			return 0, d.failed(pv, err)
		}
	case verdict.Action == plan.Note:
		// A crash before it leaves a directory whose record says that it has no object: here again.
		if err := h.Published(pv.Name); err != nil {
			return 0, err
		}
		d.reportThere(pv)
	case verdict.Action == plan.PutBack:
		return 0, d.putBack(ctx, h, pv, verdict)
	case verdict.Action == plan.Ignore && facts.Record != nil:
		d.reportThere(pv)
	case verdict.Reason == "":
		return verdict.After, nil
	default:
		d.reportMissing(pv, verdict)
	}
	return max(verdict.After, d.said.Held(string(pv.UID))), nil
}

func (d *Directory) gather(h disk.Handle, pv *corev1.PersistentVolume) (plan.PartFacts, error) {
	f := plan.PartFacts{Volume: pv, Self: d.Self, Pool: d.PoolOf(pv)}
	_, f.Full = h.State.Closed()
	if !h.State.Removable() {
		f.Closed = f.Full
		return f, nil
	}
	f.Room = h.Room()
	var err error
	f.Record, err = h.Lookup(pv.Name)
	if errors.Is(err, record.ErrDamaged) {
		f.Unreadable, err = err.Error(), nil
	}
	return f, err
}

// make makes the directory. A crash after it leaves a directory of a volume whose object is there,
// which is what should be; the next start finds it and does nothing.
func (d *Directory) make(h disk.Handle, pv *corev1.PersistentVolume, f plan.PartFacts) error {
	rec, err := plan.PartRecord(f)
	if err != nil {
		return err // ForPart returned BadName for it
	}
	rec.Class, rec.Provisioner, rec.Node = plan.VolumeClass(pv), pv.Annotations[plan.ProvisionedBy], d.Node
	rec.Source, rec.Scope, rec.Reclaim = plan.SourceHostPath, plan.ScopeEveryNode, string(pv.Spec.PersistentVolumeReclaimPolicy)
	rec.Requested, _ = plan.Bytes(plan.SizeOf(pv))
	made := volume.Spec{Record: rec, Mode: f.Pool.Mode, UID: f.Pool.UID, GID: f.Pool.GID}
	if f.Pool.Quota == plan.QuotaProject {
		made.Quota, made.Project = rec.Requested, true
	}
	return h.Create(made)
}

// expand makes the directory as large as the volume object says. A crash before it leaves a smaller
// one: here again.
func (d *Directory) expand(h disk.Handle, pv *corev1.PersistentVolume) error {
	bytes, _ := plan.Bytes(plan.SizeOf(pv))
	if err := h.Resize(pv.Name, bytes); err != nil {
		return err
	}
	d.reportExpanded(pv)
	return nil
}

// putBack asks the API server whether the object really is in use again: the watch's memory may be
// older than the removal of this node's directory.
func (d *Directory) putBack(ctx context.Context, h disk.Handle, pv *corev1.PersistentVolume, v plan.Verdict) error {
	now, err := d.API.GetVolume(ctx, pv.Name)
	if err != nil || now == nil || now.UID != pv.UID || !plan.InUse(now) {
		return err
	}
	if err := h.PutBack(pv.Name, string(pv.Spec.ClaimRef.UID)); err != nil {
		return d.failed(pv, err)
	}
	d.Forget(pv)
	d.Metrics.Part(d.Pool, v.Reason)
	d.Log.Info(v.Message, "reason", v.Reason, "volume", pv.Name, "pool", d.Pool)
	d.Events.Event(report.Volume(pv), corev1.EventTypeNormal, v.Reason, v.Message)
	return nil
}

// inFlightAgain is when a volume without an object is looked at again whose claim is being
// provisioned here. The object may have come and gone meanwhile without an event: a watch that was
// broken brings neither.
const inFlightAgain = 10 * time.Second

// lookWithoutObject looks at a volume whose object the watch does not have any more, if this node
// still has its directory: it was slower than the others, or its pool was closed.
func (d *Directory) lookWithoutObject(ctx context.Context, pv string) (after time.Duration, err error) {
	h, ok := d.Disk.Open(ctx)
	if !ok {
		return 0, nil // the records are gone through when it opens
	}
	rec, err := h.Lookup(pv)
	if err != nil && !errors.Is(err, record.ErrDamaged) {
		return 0, err
	}
	switch {
	case rec == nil:
		return 0, nil
	case d.InFlight(rec.ClaimUID):
		return inFlightAgain, nil
	case rec.Place == record.Emptying, rec.Place == record.InArchive:
		d.Purge(pv) // the response to the removal of the object was lost
		return 0, nil
	case rec.Place != record.InPool && rec.Place != record.InTrash:
		return 0, nil
	}
	return 0, d.Compare(ctx, h, *rec)
}
