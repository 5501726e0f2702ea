package everynode

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// late is how old an object is for which a directory is news: the node joined, was off, or could
// not.
const late = time.Minute

func (d *Directory) reportMade(pv *corev1.PersistentVolume) {
	message := fmt.Sprintf("node %s has its directory for this volume now, in pool %s", d.Node, d.Pool)
	d.Log.Info(message, "reason", plan.ReasonPartMade, "volume", pv.Name, "pool", d.Pool)
	d.Metrics.Part(d.Pool, plan.ReasonPartMade)
	if d.said.Resolve(string(pv.UID)) || time.Since(pv.CreationTimestamp.Time) > late {
		d.Events.Event(report.Volume(pv), corev1.EventTypeNormal, plan.ReasonPartMade, message)
	}
}

// reportThere reports a directory that was reported missing. In a pool that opens and closes all
// the time it is reported as often as that it is missing: each once, and again the one that lasts.
func (d *Directory) reportThere(pv *corev1.PersistentVolume) {
	message := fmt.Sprintf("node %s has its directory for this volume again, in pool %s", d.Node, d.Pool)
	if !d.said.Recovered(string(pv.UID), message) {
		return
	}
	d.Log.Info(message, "reason", plan.ReasonPartMade, "volume", pv.Name, "pool", d.Pool)
	d.Events.Event(report.Volume(pv), corev1.EventTypeNormal, plan.ReasonPartMade, message)
}

// reportExpanded reports a directory that is larger now: to the log, and to the volume if it was
// reported that it is not.
func (d *Directory) reportExpanded(pv *corev1.PersistentVolume) {
	size := plan.SizeOf(pv)
	message := fmt.Sprintf("node %s: the directory of this volume has %s now, in pool %s", d.Node, words.Name(size.String()), d.Pool)
	d.Log.Info(message, "reason", plan.ReasonExpanded, "volume", pv.Name, "pool", d.Pool)
	d.Metrics.Part(d.Pool, plan.ReasonExpanded)
	if d.said.Resolve(string(pv.UID)) {
		d.Events.Event(report.Volume(pv), corev1.EventTypeNormal, plan.ReasonExpanded, message)
	}
}

// reportMissing reports about the volume, of which each node may report something.
func (d *Directory) reportMissing(pv *corev1.PersistentVolume, v plan.Verdict) {
	if v.Reason == "" || !d.said.New(string(pv.UID), v.Reason+" "+v.Message) {
		return
	}
	d.Metrics.Part(d.Pool, v.Reason)
	d.Log.Warn(v.Message, "reason", v.Reason, "volume", pv.Name, "pool", d.Pool)
	d.Events.Event(report.Volume(pv), corev1.EventTypeWarning, v.Reason, v.Message)
}

// failed reports an error of the disk, and returns it. A pool that moved is looked at before
// anything is reported; its gate then has the reason.
func (d *Directory) failed(pv *corev1.PersistentVolume, err error) error {
	d.LookAtPool()
	if !errors.Is(err, volume.ErrDirectoryReplaced) && !errors.Is(err, context.Canceled) {
		d.reportMissing(pv, plan.Verdict{Action: plan.Wait, Reason: plan.ReasonProvisioningFailed,
			Message: "node " + d.Node + " has no directory for this volume: " + err.Error()})
	}
	return err
}
