package adopt

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/volume"
)

// Undo gives up the volumes of other systems: those that were adopted from them, and those that were
// made under their names. Each object becomes what its own system would have made, its record goes,
// its directory stays.
func Undo(ctx context.Context, o Options) ([]Row, error) {
	inventory, err := o.Hands.List(ctx, o.Identity)
	if err != nil {
		return nil, err
	}
	rows, err := o.leave(ctx, inventory)
	if err != nil {
		return rows, err
	}
	for _, v := range inventory.Volumes {
		if !plan.Returnable(v.Record.Provisioner, o.Provisioner, o.Aliases) {
			continue
		}
		record := planRecord(v.Record, v.Place)
		pv, err := o.API.GetVolume(ctx, record.PV)
		if err != nil {
			return rows, err
		}
		verdict := plan.ForReturn(*record, pv, o.Node)
		if verdict.Action == plan.Ignore {
			continue
		}
		row := Row{
			Volume: record.PV, Claim: record.Namespace + "/" + record.Claim, Path: o.Pool.Path + "/" + record.Directory,
			Provisioner: v.Record.Provisioner, Action: verdict.Action, Message: verdict.Message,
		}
		if verdict.Action == plan.Return && !o.DryRun {
			// A crash between the two leaves a record whose object has no label: the daemon keeps it, and the
			// next call forgets it.
			_, err := o.API.MarkVolume(ctx, pv, plan.ReturnMarks(pv))
			if err == nil {
				err = o.Hands.Forget(ctx, o.Identity, record.PV)
			}
			row = row.after(err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// leave gives up the objects that a call of this node took and did not record.
func (o Options) leave(ctx context.Context, inventory volume.Inventory) ([]Row, error) {
	recorded := map[string]bool{}
	for _, v := range inventory.Volumes {
		recorded[v.Record.PV] = true
	}
	var begun []*corev1.PersistentVolume
	err := o.API.EachVolume(ctx, func(v *corev1.PersistentVolume) {
		if !recorded[v.Name] && plan.Begun(v, o.Pool, o.Node) {
			begun = append(begun, v.DeepCopy())
		}
	})
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, v := range begun {
		row := rowOf(v, plan.AdoptVerdict{Action: plan.Return})
		if !o.DryRun {
			_, err := o.API.MarkVolume(ctx, v, plan.ReturnMarks(v))
			row = row.after(err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}
