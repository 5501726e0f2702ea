package expansion

import (
	"errors"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
)

// Mend raises the sizes of these records, and of their limits, to those of the volume objects. A record is smaller than
// its object where a daemon of a shared pool was paused in the middle of an expansion, and wrote its size after the next
// daemon's; or where the pool was restored from a backup. It returns all errors.
func (x *Expander) Mend(h disk.Handle, p Pool, records []record.Record) error {
	var errs []error
	for _, rec := range records {
		pv, watched := x.Controller.WatchedVolume(rec.PV)
		if !watched || !plan.Smaller(p.Pool, rec, pv) {
			continue
		}
		bytes, _ := plan.Bytes(plan.SizeOf(pv))
		if err := h.Restore(rec.PV, bytes); err != nil {
			errs = append(errs, err)
			continue
		}
		x.Log.Info("a record was smaller than its volume, and has its size now", "volume", rec.PV, "pool", p.Name)
	}
	return errors.Join(errs...)
}
