package adopt

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt/rules"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
)

// undoReplacement makes the CSI driver's object again, in the place of ours, and forgets the record. It goes the way of
// survey.replace, and a crash leaves the same; after the last step but one, a record that the next call forgets.
func (o Options) undoReplacement(ctx context.Context, v record.Record, row Row) Row {
	for try := 1; ; try++ {
		notes, err := o.restoreOriginal(ctx, v)
		if errors.Is(err, errOver) {
			row.Action = plan.Ignore
			return row
		}
		if apierrors.IsConflict(err) && try < tries && ctx.Err() == nil {
			continue
		}
		row.Notes = notes
		if err == nil && o.DryRun {
			return row
		}
		return row.after(err)
	}
}

// errOver says that there is nothing to give back: the volume was removed, or its object was let go.
var errOver = errors.New("the volume is over")

func (o Options) restoreOriginal(ctx context.Context, v record.Record) (notes []string, err error) {
	theirs, err := readOriginal(v.Replaced)
	if err != nil {
		return nil, err
	}
	now, err := o.API.GetVolume(ctx, v.PV)
	if err != nil {
		return nil, err
	}
	if now == nil && (v.Place != record.InPool || v.Retained) {
		return nil, errOver
	}
	held := now != nil && rules.Held(now, o.Pool, o.Node)
	going := now != nil && now.DeletionTimestamp != nil
	lost := now == nil || going
	switch {
	case now == nil, held && going:
	case rules.OfDriver(now, theirs.Spec.CSI.Driver): // not replaced yet, or made again already
		if held && !o.DryRun {
			_, err = o.API.PatchVolume(ctx, now, rules.ReleasePatch(now))
		}
		return nil, errors.Join(err, o.forget(ctx, v, err))
	case !rules.Succeeds(now, o.Pool, o.Node, &v):
		return nil, errNotMadeHere
	case going:
		return nil, errors.New("it is being deleted")
	case v.Place != record.InPool:
		return nil, fmt.Errorf("its directory is in the place %q", v.Place)
	}
	gone, err := o.idle(ctx, v, now)
	if err != nil || o.DryRun {
		return nil, err
	}
	if !lost {
		if err := o.API.CheckVolume(ctx, rules.Predecessor(theirs, now)); err != nil {
			return nil, err
		}
		if now, err = o.hold(ctx, now); err != nil {
			return nil, err
		}
		theirs = rules.Predecessor(theirs, now)
		if v.Replaced, err = original(theirs); err != nil {
			return nil, err
		}
		if err := o.Store.Adopt(ctx, o.Identity, v); err != nil {
			return nil, err
		}
	}
	if err := o.clear(ctx, now); err != nil {
		return nil, err
	}
	if gone && lost {
		theirs.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		notes = append(notes, "its claim is gone, so it was made with the policy Retain")
	}
	existing, err := o.API.CreateVolume(ctx, rules.Predecessor(theirs, nil))
	if err == nil && existing != nil && !rules.OfDriver(existing, theirs.Spec.CSI.Driver) {
		err = errNotMadeHere
	}
	return notes, errors.Join(err, o.forget(ctx, v, err))
}

// idle wants that no pod has the object in use, and reports whether the claim is gone. Without an object no pod
// could have started.
func (o Options) idle(ctx context.Context, v record.Record, now *corev1.PersistentVolume) (gone bool, err error) {
	r := v
	if now != nil { // it may have been bound anew
		r.Namespace, r.Claim, r.ClaimUID = now.Spec.ClaimRef.Namespace, now.Spec.ClaimRef.Name, string(now.Spec.ClaimRef.UID)
	}
	used, gone, err := o.claim(ctx, r.Namespace, r.Claim, r.ClaimUID)
	if err != nil || now == nil {
		return gone, err
	}
	if used != "" {
		return gone, fmt.Errorf("pod %s uses it", used)
	}
	if at := o.shown(r.Directory, func(string) bool { return false }); at != "" {
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
