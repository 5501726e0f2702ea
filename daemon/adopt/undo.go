package adopt

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/adoptrules"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// Undo undoes the adoption of volumes of other systems: those that were adopted from them, and
// those that were made under their names. Each object becomes what its own system would have made,
// its record goes, its directory stays.
func Undo(ctx context.Context, o Options) ([]Row, error) {
	inventory, err := o.Store.List(ctx, o.Identity)
	if err != nil {
		return nil, err
	}
	rows, err := o.undoUnrecorded(ctx, inventory)
	if err != nil {
		return rows, err
	}
	for _, v := range inventory.Volumes {
		if !adoptrules.Undoable(o.Self, v.Provisioner) {
			continue
		}
		row := Row{
			Volume: v.PV, Claim: v.Namespace + "/" + v.Claim, Path: o.Pool.Path + "/" + v.Directory,
			Provisioner: v.Provisioner, Action: adoptrules.Undo,
		}
		if v.Replaced != "" {
			row = o.undoReplacement(ctx, v, row)
		} else {
			row = o.undoAdoption(ctx, v, row)
		}
		if row.Action != plan.Ignore {
			rows = append(rows, row)
		}
		if ctx.Err() != nil {
			return rows, context.Cause(ctx)
		}
	}
	return rows, nil
}

// undoAdoption takes the marks off one volume.
func (o Options) undoAdoption(ctx context.Context, v record.Record, row Row) Row {
	pv, err := o.API.GetVolume(ctx, row.Volume)
	if err != nil {
		return row.after(err)
	}
	verdict := adoptrules.ForUndo(v, pv, o.Self)
	row.Action, row.Message = verdict.Action, verdict.Message
	if verdict.Action == adoptrules.Undo {
		// A crash between the two leaves a record whose object has no label: the daemon keeps it,
		// and the next call forgets it.
		err := o.unmark(ctx, pv, adoptrules.UndoPatch(pv))
		row = o.tried(row, errors.Join(err, o.forget(ctx, v, err)))
	}
	return row
}

// unmark changes an object, or asks the server whether it would.
func (o Options) unmark(ctx context.Context, v *corev1.PersistentVolume,
	marks plan.MetadataPatch) error {
	if o.DryRun {
		return o.API.CheckPatch(ctx, v, marks)
	}
	_, err := o.API.PatchVolume(ctx, v, marks)
	return err
}

// undoUnrecorded undoes the adoption of the objects that a call of this node took and did not
// record, or whose records an earlier undo removed.
func (o Options) undoUnrecorded(ctx context.Context, inventory volume.Inventory) ([]Row, error) {
	recorded := map[string]bool{}
	for _, v := range inventory.Volumes {
		recorded[v.PV] = true
	}
	var begun []*corev1.PersistentVolume
	err := o.API.EachVolume(ctx, func(v *corev1.PersistentVolume) {
		if !recorded[v.Name] && (o.begunHere(ctx, v) || o.heldHere(ctx, v) || o.restoredHere(ctx, v)) {
			begun = append(begun, v.DeepCopy())
		}
	})
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, v := range begun {
		row := rowOf(v, adoptrules.Verdict{Action: adoptrules.Undo})
		marks := adoptrules.UndoPatch(v)
		if adoptrules.Held(v, o.Pool, o.Node) {
			marks = adoptrules.ReleasePatch(v)
		}
		rows = append(rows, o.tried(row, o.unmark(ctx, v, marks)))
	}
	return rows, nil
}

// begunHere reports whether a call of this node was about to record the volume in this pool, with
// its object as it is.
func (o Options) begunHere(ctx context.Context, v *corev1.PersistentVolume) bool {
	return !adoptrules.Held(v, o.Pool, o.Node) && adoptrules.Begun(o.seen(v), o.Pool, o.Node) && o.has(ctx, v)
}

// heldHere reports whether a call of this node was about to replace a CSI driver's object whose
// data lies in the pool. The object does not name the pool.
func (o Options) heldHere(ctx context.Context, v *corev1.PersistentVolume) bool {
	return v.Spec.CSI != nil && adoptrules.Held(v, o.Pool, o.Node) && v.DeletionTimestamp == nil && o.has(ctx, v)
}

// restoredHere reports whether an object has this node's marks and its directory in the pool has no
// record: the API server was restored to a day before the adoption was undone.
func (o Options) restoredHere(ctx context.Context, v *corev1.PersistentVolume) bool {
	seen := o.seen(v)
	return adoptrules.Marked(o.Self, seen, o.Pool) && o.Store.Usable(ctx, o.Identity, adoptrules.DirectoryOf(o.Pool, seen)) == nil
}
