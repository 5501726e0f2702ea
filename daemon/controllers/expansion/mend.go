package expansion

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// Mend gives these records, and their limits, the sizes of the volume objects. A record is smaller
// than its object where a daemon of a shared pool was paused in the middle of an expansion, and
// wrote its size after the next daemon's; or where the pool was restored from a backup; or because
// of a slip in the object. What the pool has no room for stays as it is, and is told. A record is
// larger than its object where such a slip was taken back. It returns all errors.
func (x *Expander) Mend(ctx context.Context, h disk.Handle, p Pool, records []record.Record) error {
	var errs []error
	for _, rec := range records {
		pv, watched := x.Watched(rec.PV)
		if !watched {
			continue
		}
		bytes, _ := plan.Bytes(plan.SizeOf(pv))
		mend := plan.Smaller(p.Pool, rec, pv)
		if !mend {
			var err error
			if bytes, mend, err = x.larger(ctx, p, rec, pv); err != nil {
				errs = append(errs, err)
			}
		}
		if !mend {
			x.said.Forget(sizeKey(pv))
			continue
		}
		err := h.ResizeFrom(rec.PV, int64(rec.Reserved()), bytes)
		if full := new(capacity.FullError); errors.As(err, &full) {
			x.tooSmall(p, rec, pv, full.Room)
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		x.Log.Info(fmt.Sprintf("a record said %s, and says %s now as its volume object",
			words.Size(rec.Reserved()), words.Size(uint64(bytes))), "volume", rec.PV, "pool", p.Name)
	}
	return errors.Join(errs...)
}

// larger decides on objects that are read now: the watch may be behind an expansion.
func (x *Expander) larger(
	ctx context.Context, p Pool, rec record.Record, pv *corev1.PersistentVolume,
) (int64, bool, error) {
	if _, larger := plan.Larger(p.Pool, rec, pv, nil); !larger {
		return 0, false, nil
	}
	now, err := x.API.GetVolume(ctx, rec.PV)
	if err != nil || now == nil || now.UID != pv.UID {
		return 0, false, err
	}
	var claim *corev1.PersistentVolumeClaim
	if ref := now.Spec.ClaimRef; ref != nil {
		if claim, err = x.API.GetClaim(ctx, ref.Namespace, ref.Name); err != nil {
			return 0, false, err
		}
	}
	bytes, larger := plan.Larger(p.Pool, rec, now, claim)
	return bytes, larger, nil
}

func sizeKey(pv *corev1.PersistentVolume) string { return "size/" + string(pv.UID) }

func (x *Expander) tooSmall(
	p Pool, rec record.Record, pv *corev1.PersistentVolume, room capacity.Room,
) {
	if has := plan.SizeOf(pv); !x.said.New(sizeKey(pv), has.String()) {
		return
	}
	message := plan.TooSmall(x.Node, p.Pool, rec, pv, room)
	x.Metrics.Expansion(p.Name, plan.ReasonNotEnoughSpace)
	x.Log.Warn(message, "reason", plan.ReasonNotEnoughSpace, "volume", rec.PV, "pool", p.Name)
	x.Events.Event(report.Volume(pv), corev1.EventTypeWarning, plan.ReasonNotEnoughSpace, message)
}
