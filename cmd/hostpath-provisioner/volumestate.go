package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/adoptrules"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// States of a volume that no object's phase says.
const (
	stateRetained = "retained"     // its data is kept on purpose
	stateOrphaned = "orphaned"     // recorded, and no object knows it
	stateMissing  = "missing"      // an object says that it is here, and it is not
	stateForeign  = "foreign"      // in the pool and not ours
	stateLeftover = "leftover"     // of work that was cut off; the daemon sweeps it
	stateDamaged  = "damaged"      // its record cannot be read
	stateHalf     = "half adopted" // adopt --from-csi or --undo was cut off, and has to be called again
	stateMoving   = "half moved"   // import was cut off, and has to be called again
	stateInline   = "inline"       // of a pod, which takes it along
	stateSnapshot = "snapshot"     // of a volume; a VolumeSnapshotContent knows it, or that is not known
	stateTaking   = "copying"      // a snapshot that may not be whole
	stateUnknown  = "unknown"      // recorded, and the API was not asked
)

// stateOf says how a recorded volume stands: by where its directory is, then by its object.
func stateOf(v record.Record, pv *corev1.PersistentVolume, asked bool) string {
	switch {
	case v.Place == record.Nowhere && pv != nil && leaves(pv):
		return phase(pv)
	case v.Place == record.Nowhere && pv != nil:
		return stateMissing
	// its object did not go by the daemon's hand
	case v.Place == record.InTrash && pv == nil && asked && !v.Retained && v.Kind != record.Inline:
		return stateOrphaned
	case v.Place != record.InPool:
		return string(v.Place)
	case v.Replaced != "" && !v.Retained && asked && (pv == nil || pv.Annotations[adoptrules.HeldAnnotation] != ""):
		return stateHalf
	case v.Moving != "" && asked && pv == nil:
		return stateMoving
	case v.Kind == record.Inline:
		return stateInline
	case v.Kind == record.Snapshot && v.Unpublished:
		return stateTaking
	case v.Kind == record.Snapshot && !v.Retained:
		return stateSnapshot
	case pv != nil:
		return phase(pv)
	case v.Retained:
		return stateRetained
	case !asked:
		return stateUnknown
	case v.Unheld: // its object went while the daemon was away
		return stateRetained
	default:
		return stateOrphaned
	}
}

// leaves reports whether a volume is removed with its data: it is not lost then.
func leaves(pv *corev1.PersistentVolume) bool {
	return pv.Status.Phase == corev1.VolumeReleased &&
		(pv.DeletionTimestamp != nil ||
			pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete)
}

// stateOfSnapshot is stateOf of a snapshot, by whether a VolumeSnapshotContent names it; nil: that
// is not known.
func stateOfSnapshot(v record.Record, state string, handles map[string]bool) string {
	switch {
	case v.Retained, v.Unpublished, v.Place != record.InPool && v.Place != record.InTrash:
		return state
	case handles != nil && !handles[v.PV]:
		return stateOrphaned
	case v.Place == record.InTrash:
		return string(v.Place)
	}
	return state
}

// handlesWithin is how long the cluster may take to list VolumeSnapshotContents, which it need not
// have.
const handlesWithin = 2 * time.Second

// handles are the snapshots that VolumeSnapshotContents name, nil if they cannot be listed, or no
// pool has any.
func handles(ctx context.Context, client *kube.Client, cfg config.Config) map[string]bool {
	if !slices.ContainsFunc(cfg.Pools, func(p config.Pool) bool {
		return p.Snapshots != "" && p.Snapshots != config.SnapshotsOff
	}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, handlesWithin)
	defer cancel()
	contents := client.Contents(nil)
	go kube.RunOptional(ctx, contents)
	select {
	case <-contents.Synced():
	case <-ctx.Done():
		return nil
	}
	all := map[string]bool{}
	for _, one := range contents.List() {
		all[one.Handle()] = true
	}
	return all
}

// phase is the object's, in a word that says what follows: a released volume is removed unless its
// policy keeps it.
func phase(pv *corev1.PersistentVolume) string {
	switch {
	case pv.Status.Phase == corev1.VolumeReleased && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain:
		return stateRetained
	case pv.Status.Phase == "":
		return strings.ToLower(string(corev1.VolumePending))
	default:
		return strings.ToLower(string(pv.Status.Phase))
	}
}

// state is what the table shows.
func (r volumeRow) state() string {
	switch {
	case r.Node != "":
		return r.State + " (of node " + printable(r.Node) + ")"
	case r.Unwatched:
		return r.State + " (not watched)"
	}
	return r.State
}

// warnLost tells of volumes whose data is not where their object says, or not known, and reports
// whether there are any.
func (p *program) warnLost(volumes []volumeRow) bool {
	n := map[string]int{}
	for _, v := range volumes {
		n[v.State]++
	}
	if lost := n[stateMissing]; lost > 0 {
		fmt.Fprintf(p.stderr, "%s: warning: volumes whose data is not here: %d; "+
			"see VolumeLost in troubleshooting.md\n", name, lost)
	}
	if damaged := n[stateDamaged]; damaged > 0 {
		fmt.Fprintf(p.stderr, "%s: warning: records that cannot be read: %d; "+
			"see RecordDamaged in troubleshooting.md\n", name, damaged)
	}
	return n[stateMissing]+n[stateDamaged] > 0
}
