package expansion

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/begun"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// API is the part of Kubernetes that is used. An object that does not exist is nil without an
// error.
type API interface {
	GetClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	GetVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
	// PatchClaimStatus and SetCapacity change an object that still is as given; a conflict if it is
	// not. The former returns the changed claim.
	PatchClaimStatus(ctx context.Context, claim *corev1.PersistentVolumeClaim, s plan.ClaimStatus) (*corev1.PersistentVolumeClaim, error)
	SetCapacity(ctx context.Context, pv *corev1.PersistentVolume, size resource.Quantity) error
}

// Metrics counts. It never blocks.
type Metrics interface {
	Expansion(pool, reason string)
}

// Options are an Expander's. All fields are needed.
type Options struct {
	plan.Self
	API API
	// Watched returns a volume as the watch brought it last.
	Watched    func(name string) (*corev1.PersistentVolume, bool)
	CountNodes func(ctx context.Context) int // how many nodes the cluster has
	MayWarn    func(namespace string) bool   // a warning about an object may be written now
	Events     report.Events
	Metrics    Metrics
	Log        *slog.Logger
}

// Pool is the pool of a claim's volume.
type Pool struct {
	plan.Pool                     // the zero Pool: the volume is of a pool that is not configured here
	Disk      *disk.Pool          // not of the zero Pool
	Elector   *leadership.Elector // nil for a pool that is this node's alone
	LookAt    func()              // has the pool checked again
}

// Expander makes volumes larger. It is safe for concurrent use.
type Expander struct {
	Options
	said    report.Dedup   // by the claim's UID
	first   begun.Set      // claims that request more than they have, by UID
	limiter report.Limiter // of the expansions of a namespace
}

// New makes an Expander. It touches nothing.
func New(o Options) *Expander { return &Expander{Options: o} }

// Forget forgets a claim that has what it requests, or is gone.
func (x *Expander) Forget(uid string) {
	x.said.Forget(uid)
	x.first.End(uid)
}

// Look looks at a claim that requests more than it has, as the watch brought it. What is not to be
// changed costs no request.
func (x *Expander) Look(ctx context.Context, p Pool, claim *corev1.PersistentVolumeClaim) (time.Duration, error) {
	pv, err := x.volumeOf(ctx, p, claim)
	if err != nil || pv == nil {
		return 0, err
	}
	x.first.Begin(string(claim.UID))
	f, _, err := x.gather(ctx, p, claim, pv)
	if err != nil {
		return 0, x.diskFailed(p, claim, err)
	}
	verdict := plan.ForExpansion(f)
	if x.acts(f, verdict) {
		return x.act(ctx, p, claim)
	}
	return x.wait(p, claim, verdict), nil
}

// acts reports whether a verdict changes something. Where the API server keeps no state, it is not
// told the same again.
func (x *Expander) acts(f plan.ExpandFacts, v plan.Verdict) bool {
	noted := f.Noted(corev1.PersistentVolumeClaimControllerResizeInfeasible) ||
		f.Stateless() && x.first.Noted(string(f.Claim.UID)) == refusal(f.Claim, v)
	return v.Action == plan.Expand || v.Action == plan.Infeasible && !noted
}

// refusal is what was refused: another size is another request.
func refusal(claim *corev1.PersistentVolumeClaim, v plan.Verdict) string {
	bytes, _ := plan.Bytes(claim.Spec.Resources.Requests[corev1.ResourceStorage])
	return fmt.Sprint(v.Reason, " ", bytes)
}

// volumeOf is the claim's volume, nil if it is another node's. What is in a pool that others have,
// too, may bear the name of another node, from before the pool was shared, and then no watch of
// this one brings it.
func (x *Expander) volumeOf(ctx context.Context, p Pool, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	pv, watched := x.Watched(claim.Spec.VolumeName)
	if watched || p.Scope != plan.ScopeShared || !p.Elector.Leads() {
		return pv, nil
	}
	return x.API.GetVolume(ctx, claim.Spec.VolumeName)
}

func (x *Expander) gather(ctx context.Context, p Pool, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) (plan.ExpandFacts, disk.Handle, error) {
	f := plan.ExpandFacts{Self: x.Self, Claim: claim, Volume: pv, Age: x.first.Since(string(claim.UID))}
	if p.Name == "" {
		return f, disk.Handle{}, nil
	}
	h, _ := p.Disk.Open(ctx)
	f.Pool, f.Silent = &p.Pool, p.Elector.Role() == leadership.Standby
	if !h.State.Removable() {
		_, f.Closed = h.State.Closed()
	}
	if f.Closed = p.Elector.Blocked(f.Closed); f.Closed != "" || f.Silent {
		return f, h, nil
	}
	if f.Room = h.Room(); plan.OnEveryNode(pv) {
		f.Nodes = x.CountNodes(ctx)
	}
	var err error
	f.Record, err = h.Lookup(pv.Name)
	if errors.Is(err, record.ErrDamaged) {
		f.Unreadable, err = err.Error(), nil
	}
	return f, h, err
}

// act decides once more, on objects that were read just now, and does it. A tenant may change a
// request often, and each change costs some requests: too many are left for later.
func (x *Expander) act(ctx context.Context, p Pool, seen *corev1.PersistentVolumeClaim) (time.Duration, error) {
	allowed, logIt := x.limiter.Allow(seen.Namespace, time.Now())
	if logIt {
		x.Log.Warn("there is too much to expand in one namespace: some of it is expanded later", "namespace", seen.Namespace)
	}
	if !allowed {
		return report.LimitedRetry, nil
	}
	claim, err := x.API.GetClaim(ctx, seen.Namespace, seen.Name)
	if err != nil || claim == nil || claim.UID != seen.UID || !plan.Growing(claim) { // a restored server may have it unbound
		return 0, err
	}
	pv, err := x.API.GetVolume(ctx, claim.Spec.VolumeName)
	if err != nil || pv == nil {
		return 0, err
	}
	f, h, err := x.gather(ctx, p, claim, pv)
	if err != nil {
		return 0, x.diskFailed(p, claim, err)
	}
	switch verdict := plan.ForExpansion(f); {
	case verdict.Action == plan.Expand:
		return 0, x.failed(p, claim, x.expand(ctx, p, h, f))
	case x.acts(f, verdict):
		return verdict.After, x.failed(p, claim, x.refuse(ctx, p, f, verdict))
	default:
		return x.wait(p, claim, verdict), nil
	}
}

// expand makes the volume larger.
//
//	claim's status    a crash before it leaves a request that is larger than what the claim has: here again
//	record and limit  a crash leaves a volume that may take more than its object says: the same. If the request was
//	                  lowered meanwhile, both become smaller again, as nothing has promised them
//	volume object     the same: from here on the size stays, whatever is requested
//	claim's status    done
func (x *Expander) expand(ctx context.Context, p Pool, h disk.Handle, f plan.ExpandFacts) error {
	target := f.Target()
	bytes, _ := plan.Bytes(target)
	claim, err := f.Claim, error(nil)
	if !f.Noted(corev1.PersistentVolumeClaimControllerResizeInProgress) {
		if claim, err = x.API.PatchClaimStatus(ctx, claim, plan.BegunStatus(f, time.Now())); err != nil {
			return err
		}
	}
	if err := p.Elector.Fence(ctx); err != nil {
		return err
	}
	if err := h.Resize(f.Volume.Name, bytes); err != nil {
		if full := new(capacity.FullError); errors.As(err, &full) {
			f.Claim, f.Room = claim, full.Room
			return x.tooLate(ctx, p, f)
		}
		return &diskError{err}
	}
	// Also of an object that has the size: a server that was restored meanwhile refuses it, and the
	// claim is told no size then.
	if err := x.API.SetCapacity(ctx, f.Volume, target); err != nil {
		return err
	}
	if err := x.finish(ctx, claim, target); err != nil {
		return err
	}
	x.reportDone(p, f, target)
	return nil
}

// tooLate: another volume was promised the space since the facts of this one were gathered. It is
// decided again with what is left; of scope every-node another node may have the room, and the
// claim is looked at again.
func (x *Expander) tooLate(ctx context.Context, p Pool, f plan.ExpandFacts) error {
	if verdict := plan.ForExpansion(f); verdict.Action == plan.Infeasible {
		return x.refuse(ctx, p, f, verdict)
	}
	return nil
}

// finish writes that the claim has the size. kubelet may have done so in between, for a local
// volume: then the status is not as given, and all is well.
func (x *Expander) finish(ctx context.Context, claim *corev1.PersistentVolumeClaim, size resource.Quantity) error {
	_, err := x.API.PatchClaimStatus(ctx, claim, plan.DoneStatus(size))
	if !apierrors.IsConflict(err) {
		return err
	}
	now, readErr := x.API.GetClaim(ctx, claim.Namespace, claim.Name)
	if readErr != nil {
		return readErr
	}
	if now == nil || now.UID != claim.UID || !plan.Growing(now) {
		return nil
	}
	return err
}

// refuse writes in the claim's status that its request cannot be met, and why.
func (x *Expander) refuse(ctx context.Context, p Pool, f plan.ExpandFacts, v plan.Verdict) error {
	message := words.Line(v.Message, words.MessageMax)
	if _, err := x.API.PatchClaimStatus(ctx, f.Claim, plan.InfeasibleStatus(f, message, time.Now())); err != nil {
		return err
	}
	x.first.Note(string(f.Claim.UID), refusal(f.Claim, v))
	x.said.Forget(string(f.Claim.UID)) // it is another request than the last one
	x.warn(p, f.Claim, v.Reason, message)
	return nil
}

// wait reports why nothing is done, and returns when to look again.
func (x *Expander) wait(p Pool, claim *corev1.PersistentVolumeClaim, v plan.Verdict) time.Duration {
	if v.Action != plan.Wait || v.Reason == "" {
		return v.After
	}
	x.warn(p, claim, v.Reason, v.Message)
	if held := x.said.Held(string(claim.UID)); held > 0 {
		return min(held, v.After)
	}
	return v.After
}

func (x *Expander) warn(p Pool, claim *corev1.PersistentVolumeClaim, reason, message string) {
	uid := string(claim.UID)
	if !x.said.New(uid, reason+" "+message) {
		return
	}
	if !x.MayWarn(claim.Namespace) {
		x.said.Retract(uid)
		return
	}
	x.Metrics.Expansion(p.Name, reason)
	x.Log.Warn(message, "reason", reason, "claim", claim.Namespace+"/"+claim.Name, "volume", claim.Spec.VolumeName, "pool", p.Name)
	x.Events.Event(report.Claim(claim), corev1.EventTypeWarning, reason, message)
}

func (x *Expander) reportDone(p Pool, f plan.ExpandFacts, size resource.Quantity) {
	had := f.Claim.Status.Capacity[corev1.ResourceStorage]
	message := fmt.Sprintf("node %s: volume %s has %s now, and had %s", x.Node, f.Volume.Name, size.String(), had.String())
	x.Metrics.Expansion(p.Name, plan.ReasonExpanded)
	x.Log.Info(message, "reason", plan.ReasonExpanded, "claim", f.Claim.Namespace+"/"+f.Claim.Name, "volume", f.Volume.Name, "pool", p.Name)
	x.Events.Event(report.Claim(f.Claim), corev1.EventTypeNormal, plan.ReasonExpanded, message)
}

// diskError is an error of the disk among those of the API.
type diskError struct{ error }

func (e *diskError) Unwrap() error { return e.error }

// failed reports an error, and returns it so that the claim is looked at again. What changed
// meanwhile is decided anew, by what the watch brings.
func (x *Expander) failed(p Pool, claim *corev1.PersistentVolumeClaim, err error) error {
	var ofDisk *diskError
	switch {
	case err == nil, errors.Is(err, leadership.ErrNotLeading):
		return nil
	case errors.As(err, &ofDisk):
		return x.diskFailed(p, claim, ofDisk.error)
	default: // of a request, which the controller reports if it lasts
		return err
	}
}

// diskFailed reports an error of the disk, and returns it. A pool that moved is looked at before
// anything is reported; its gate then has the reason.
func (x *Expander) diskFailed(p Pool, claim *corev1.PersistentVolumeClaim, err error) error {
	p.LookAt()
	if !errors.Is(err, volume.ErrDirectoryReplaced) && !errors.Is(err, context.Canceled) {
		x.warn(p, claim, plan.ReasonExpandFailed, "node "+x.Node+": the volume is not expanded: "+err.Error())
	}
	return err
}
