package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	volumeusage "github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
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
	stateSent     = "sent"         // no pod can use it until another node has received it
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
	case v.Replaced != "" && !v.Retained && asked && (pv == nil || pv.Annotations[plan.HeldAnnotation] != ""):
		return stateHalf
	case v.Moving != "" && asked && pv == nil:
		return stateMoving
	case v.Kind == record.Inline:
		return stateInline
	case v.Kind == record.Snapshot && v.Unpublished:
		return stateTaking
	case v.Kind == record.Snapshot && !v.Retained:
		return stateSnapshot
	case pv != nil && plan.OfNoNode(pv):
		return stateSent
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
	if !slices.ContainsFunc(cfg.Pools, config.Pool.TakesSnapshots) {
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

// settled reads pools and API, and again where only one of them has a volume: they are read side by
// side, and what is made or removed meanwhile may be in one of them.
func (p *program) settled(ctx context.Context, cfg config.Config, pools []config.Pool) (
	[]disk, objects, listed) {
	disks, objects := p.readBoth(ctx, cfg, pools)
	all := join(p.measured(disks), objects)
	if objects.err != nil || !slices.ContainsFunc(all.Volumes, volumeRow.oneSided) {
		return disks, objects, all
	}
	later, known := p.readBoth(ctx, cfg, pools)
	if known.err != nil || slices.ContainsFunc(later, func(d disk) bool { return d.err != nil }) {
		return disks, objects, all
	}
	now := map[string]volumeRow{}
	for _, v := range join(p.measured(later), known).Volumes {
		now[v.key()] = v
	}
	settled := all.Volumes[:0]
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	for _, v := range all.Volumes {
		if v.oneSided() {
			state := v.State
			v = now[v.key()]
			if v.Volume == "" || v.oneSided() && (v.State != state || v.went(ctx, known)) {
				continue
			}
		}
		settled = append(settled, v)
	}
	all.Volumes = settled
	return disks, objects, all
}

// went reports whether a volume without data is being removed, or was: what lists and watches bring
// may be of a while ago.
func (r volumeRow) went(ctx context.Context, known objects) bool {
	if r.State != stateMissing {
		return false
	}
	pv, err := known.client.GetVolume(ctx, r.Volume)
	return err == nil && (pv == nil || leaves(pv))
}

// oneSided reports whether there is only the data, or only the object.
func (r volumeRow) oneSided() bool { return r.State == stateMissing || r.State == stateOrphaned }

func (r volumeRow) key() string { return r.Pool + "/" + r.Volume }

// readBoth reads pools and API side by side.
func (p *program) readBoth(ctx context.Context, cfg config.Config, pools []config.Pool) (
	[]disk, objects) {
	var objects objects
	var asking sync.WaitGroup
	asking.Go(func() { objects = p.askAPI(ctx, cfg) })
	disks := p.listPools(ctx, pools)
	asking.Wait()
	objects.node = plan.NodeLabelValue(cfg.Node)
	for i, pool := range pools {
		if f, other := otherCluster(pool, disks[i].mark, objects.cluster); other {
			disks[i].stranger = errors.New(f.Message)
		}
	}
	lookUp(ctx, disks, &objects)
	return disks, objects
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

// named is the object of a record's name. A label is easily lost (a backup program, a hand), and a
// volume in use is not orphaned for that.
type named struct {
	volume *corev1.PersistentVolume // nil: the API server has none
	err    error                    // why it was not asked
}

// objectOf is the object, if it is the record's: for its claim, or with its directory. In the place
// of one that adopt replaces another provisioner's may be there.
func (n named) objectOf(r record.Record) *corev1.PersistentVolume {
	if n.volume == nil {
		return nil
	}
	ref := n.volume.Spec.ClaimRef
	ofClaim := r.Replaced == "" && ref != nil && ref.UID != "" && string(ref.UID) == r.ClaimUID
	if ofClaim || path.Base(plan.PathOf(n.volume)) == r.Directory {
		return n.volume
	}
	return nil
}

// listedThough are reasons for which a pool of the right storage is closed: what is left there is
// to be seen.
var listedThough = []string{plan.ReasonScopeChanged, plan.ReasonOtherNode}

// lookUpAtOnce bounds how many requests are in flight.
const lookUpAtOnce = 16

// lookUp reads the objects of records that none of those that were listed is of.
func lookUp(ctx context.Context, disks []disk, all *objects) {
	if all.err != nil {
		return
	}
	late := fmt.Errorf("no response within %s", apiDeadline)
	ctx, cancel := context.WithTimeoutCause(ctx, apiDeadline, late)
	defer cancel()
	all.named = map[string]named{}
	var mu sync.Mutex
	var asking sync.WaitGroup
	slots := make(chan struct{}, lookUpAtOnce)
	for _, pv := range withoutObject(disks, *all) {
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			object, err := all.client.GetVolume(ctx, pv)
			mu.Lock()
			defer mu.Unlock()
			all.named[pv] = named{object, err}
		})
	}
	asking.Wait()
}

// warnUnasked says why the API was not read, in whole or for one volume.
func (p *program) warnUnasked(all objects) {
	if all.err != nil {
		fmt.Fprintf(p.stderr, "%s: warning: the Kubernetes API was not read: %v\n", name, all.err)
	}
	for pv, n := range all.named {
		if n.err != nil {
			fmt.Fprintf(p.stderr, "%s: warning: whether volume %s has a PersistentVolume is not known: %v\n",
				name, printable(pv), n.err)
			return // of the rest the states tell
		}
	}
}

func withoutObject(disks []disk, all objects) (names []string) {
	for _, d := range disks {
		if d.stranger != nil {
			continue
		}
		known, others := ofPool(d.pool, all.volumes), ofPool(d.pool, all.others)
		for _, v := range d.inventory.Volumes {
			if v.Kind == record.Volume && known[v.PV] == nil && others[v.PV] == nil {
				names = append(names, v.PV)
			}
		}
	}
	return names
}

// warnUnwatched says once what may be done about volumes that no daemon of this node watches.
func (p *program) warnUnwatched(volumes []volumeRow) {
	n, elsewhere := 0, map[string]int{}
	for _, v := range volumes {
		switch {
		case v.Node != "":
			elsewhere[v.Pool+" --from-node "+printable(v.Node)]++
		case v.Unwatched:
			n++
		}
	}
	for _, of := range slices.Sorted(maps.Keys(elsewhere)) {
		fmt.Fprintf(p.stderr, "%s: warning: volumes that are here, "+
			"and whose PersistentVolume is another node's: %d; "+
			"if their disk was moved to this node for good, run: hostpath-provisioner import %s\n",
			name, elsewhere[of], of)
	}
	if n > 0 {
		fmt.Fprintf(p.stderr, "%s: warning: volumes whose PersistentVolume has not the labels "+
			"by which this node's daemon finds it: %d; see LabelsMissing in troubleshooting.md\n", name, n)
	}
}

// projectsTaken is what projects take, of a pool that limits volumes by them.
func projectsTaken(ctx context.Context, store *volume.Pool, id mounts.Identity) (
	by map[uint32]quota.Usage, err error) {
	all, err := store.Projects(ctx, id)
	by = map[uint32]quota.Usage{}
	for _, u := range all {
		by[u.ID] = u
	}
	return by, err
}

// measured adds what a running daemon found in the directories of volumes without a quota.
func (p *program) measured(disks []disk) []disk {
	found, err := daemon.ReadUsage(p.runtimeDir)
	if err != nil {
		return disks // none runs, or it measured nothing
	}
	for i := range disks {
		disks[i].measured = found.Pools[disks[i].pool]
	}
	return disks
}

// takes fills in what the volume's project takes.
func (r *volumeRow) takes(usage map[uint32]quota.Usage, project uint32) {
	u, known := usage[project]
	if !known || project == 0 {
		return
	}
	r.Used, r.Limit = &u.Bytes, u.Limit.Bytes
	r.InodesUsed, r.InodesLimit = &u.Inodes, u.Limit.Inodes
}

// took fills in what the volume's directory took, where no project tells.
func (r *volumeRow) took(measured map[string]volumeusage.Measured) {
	if m, known := measured[r.Volume]; known && r.Used == nil {
		r.Used, r.InodesUsed, r.Measured, r.Estimate = &m.Bytes, &m.Inodes, &m.At, m.Estimate
	}
}

// used is what the table shows: "~" is an estimate, and the age that of what was measured.
func (r volumeRow) used(now func() time.Time) string {
	if r.Measured == nil {
		return known(r.Used)
	}
	return taken(r.Used, r.Estimate) + ", " + age(*r.Measured, now()) + " ago"
}
