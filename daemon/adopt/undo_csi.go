package adopt

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt/unpublish"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/adoptrules"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// undoReplacement makes the CSI driver's object again, in the place of ours, and forgets the
// record. It goes the way of survey.replace, and a crash leaves the same; after the last step but
// one, a record that the next call forgets.
func (o Options) undoReplacement(ctx context.Context, v record.Record, row Row) Row {
	err := unpublish.Again(ctx, func() (err error) {
		row.Notes, err = o.restoreOriginal(ctx, v)
		return err
	})
	if errors.Is(err, errOver) {
		row.Action = plan.Ignore
		return row
	}
	return o.tried(row, err)
}

// errOver says that there is nothing to give back: the volume was removed, or its object was let
// go.
var errOver = errors.New("the volume is over")

// restoration is how far the CSI driver's object is from its place.
type restoration struct {
	theirs *corev1.PersistentVolume // as it is made again
	now    *corev1.PersistentVolume // the object of that name, nil if there is none
	lost   bool                     // at first there was no such object, or it was being deleted
	gone   bool                     // the claim does not exist any more
}

func (o Options) restoreOriginal(ctx context.Context, v record.Record) (notes []string, err error) {
	theirs, err := readOriginal(v.Replaced)
	if err != nil {
		return nil, err
	}
	now, err := o.API.GetVolume(ctx, v.PV)
	if err != nil {
		return nil, err
	}
	r := restoration{theirs: theirs, now: now, lost: now == nil || now.DeletionTimestamp != nil}
	held := now != nil && adoptrules.Held(now, o.Pool, o.Node)
	if now != nil && !(held && r.lost) && adoptrules.OfDriver(now, theirs.Spec.CSI.Driver) { // not replaced yet, or made again already
		if held && !o.DryRun {
			_, err = o.API.PatchVolume(ctx, now, adoptrules.ReleasePatch(now))
		}
		return nil, errors.Join(err, o.forget(ctx, v, err))
	}
	if err := o.restorable(v, now, held); err != nil {
		return nil, err
	}
	if r.gone, err = o.idle(ctx, v, now); err != nil {
		return nil, err
	}
	if o.DryRun {
		err := o.API.CheckVolume(ctx, adoptrules.Predecessor(theirs, now))
		if err == nil && !r.lost {
			err = o.API.CheckPatch(ctx, now, adoptrules.HoldPatch(now, o.Pool, o.Node))
		}
		return nil, err
	}
	if !r.lost {
		if err := o.holdReplacement(ctx, v, &r); err != nil {
			return nil, err
		}
	}
	return o.makeOriginal(ctx, v, r)
}

// restorable returns why our object cannot be replaced, nil if it can. An object that is held and
// is being deleted was on its way when the call before ended.
func (o Options) restorable(v record.Record, now *corev1.PersistentVolume, held bool) error {
	switch {
	case now == nil && (v.Place != record.InPool || v.Retained):
		return errOver
	case now == nil, held && now.DeletionTimestamp != nil:
		return nil
	case !adoptrules.Succeeds(now, o.Pool, o.Node, &v):
		return errNotMadeHere
	case now.DeletionTimestamp != nil:
		return errors.New("it is being deleted")
	case v.Place != record.InPool:
		return fmt.Errorf("its directory is in the place %q", v.Place)
	}
	return nil
}

// holdReplacement keeps our object from being used, and records the original as it will be made. A
// crash after it leaves an object that is held, with which the next call goes on.
func (o Options) holdReplacement(ctx context.Context, v record.Record, r *restoration) (err error) {
	if err := o.API.CheckVolume(ctx, adoptrules.Predecessor(r.theirs, r.now)); err != nil {
		return err
	}
	if r.now, err = o.hold(ctx, r.now); err != nil {
		return err
	}
	r.theirs = adoptrules.Predecessor(r.theirs, r.now)
	if v.Replaced, err = original(r.theirs); err != nil {
		return err
	}
	return o.Store.Adopt(ctx, o.Identity, v)
}

// makeOriginal puts the CSI driver's object in the place of ours.
func (o Options) makeOriginal(ctx context.Context, v record.Record, r restoration) (notes []string, err error) {
	if err := unpublish.Volume(ctx, o.API, r.now); err != nil {
		return nil, err
	}
	if r.gone && r.lost {
		r.theirs.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		notes = append(notes, "its claim is gone, so it was made with the policy Retain")
	}
	existing, err := o.API.CreateVolume(ctx, adoptrules.Predecessor(r.theirs, nil))
	if err == nil && existing != nil && !adoptrules.OfDriver(existing, r.theirs.Spec.CSI.Driver) {
		err = errNotMadeHere
	}
	return notes, errors.Join(err, o.forget(ctx, v, err))
}

// idle wants that no pod has the object in use, and reports whether the claim is gone. Without an
// object no pod could have started.
func (o Options) idle(ctx context.Context, v record.Record, now *corev1.PersistentVolume) (gone bool, err error) {
	ref := &corev1.ObjectReference{Namespace: v.Namespace, Name: v.Claim,
		UID: types.UID(v.ClaimUID)}
	if now != nil { // it may have been bound anew
		ref = now.Spec.ClaimRef
	}
	claim, err := unpublish.Claim(ctx, o.API, ref)
	if gone = claim == nil; err != nil || now == nil {
		return gone, err
	}
	used, err := o.user(ctx, ref.Namespace, ref.Name)
	if err != nil {
		return gone, err
	}
	if used != "" {
		return gone, fmt.Errorf("pod %s uses it", used)
	}
	if at := o.shown(v.Directory, func(string) bool { return false }); at != "" {
		return gone, fmt.Errorf("its directory is mounted at %s as well", at)
	}
	return gone, nil
}

// forget drops the record, unless there was an error before.
func (o Options) forget(ctx context.Context, v record.Record, before error) error {
	if before != nil || o.DryRun {
		return nil
	}
	return o.Store.Forget(ctx, o.Identity, v.PV)
}
