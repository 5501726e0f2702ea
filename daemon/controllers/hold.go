package controllers

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// unhold takes our finalizer off an object whose data is kept, after that is noted on the disk. The
// record says that the object is not held for longer than it is not: what is kept by mistake harms
// nobody.
func (c *volumes) unhold(
	ctx context.Context, w *poolWorker, h disk.Handle, pv *corev1.PersistentVolume,
) error {
	if err := w.elector.Fence(ctx); err != nil {
		return err
	}
	if err := h.Hold(pv.Name, false); err != nil {
		return err
	}
	_, err := c.API.ReleaseFinalizer(ctx, pv)
	return err
}

// hold puts our finalizer on an object again whose data is to go with it, and then notes that.
func (c *volumes) hold(
	ctx context.Context, w *poolWorker, h disk.Handle, pv *corev1.PersistentVolume,
) error {
	if err := w.elector.Fence(ctx); err != nil {
		return err
	}
	now, err := c.API.HoldVolume(ctx, pv)
	if err != nil || now == nil {
		return err
	}
	return h.Hold(pv.Name, true)
}

// retainUnheld notes that a volume's object is gone, which people may delete at any time.
func (c *volumes) retainUnheld(
	ctx context.Context, w *poolWorker, h disk.Handle, rec record.Record,
) error {
	if err := w.elector.Fence(ctx); err != nil {
		return ignoreNotLeading(err)
	}
	if err := h.Retain(rec.PV); err != nil {
		return err
	}
	c.Metrics.Volume(w.Name, plan.ReasonRetained)
	c.Log.Info(removed[plan.Retain], "reason", plan.ReasonRetained, "volume", rec.PV,
		"claim", rec.Namespace+"/"+rec.Claim, "pool", w.Name)
	return nil
}
