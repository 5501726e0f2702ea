package adopt

import (
	"context"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
)

// Undo gives up the volumes of other systems: those that were adopted from them, and those that were
// made under their names. Each object becomes what its own system would have made, its record goes,
// its directory stays.
func Undo(ctx context.Context, o Options) ([]Row, error) {
	inventory, err := o.Hands.List(ctx, o.Identity)
	if err != nil {
		return nil, err
	}
	var rows []Row
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
			err := o.API.MarkVolume(ctx, pv, plan.ReturnMarks(pv))
			if err == nil {
				err = o.Hands.Forget(ctx, o.Identity, record.PV)
			}
			row = row.after(err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}
