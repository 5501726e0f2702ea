// Package adoptrules decides which volumes of other provisioners this node adopts, which objects of a
// CSI driver it replaces, and which of both it can undo. Each decision is an ordered list of pure
// rules, as in package plan.
//
// It will not read a disk, a clock or the API, and it changes nothing: package adopt gathers the
// facts and carries out the verdicts.
package adoptrules

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// Actions for a volume of another system, beside plan.Ignore and plan.Refuse.
const (
	Adopt plan.Action = "adopt" // take responsibility: record, labels, finalizer
	Ours  plan.Action = "ours"  // it is recorded and labelled already
	Undo  plan.Action = "undo"  // take labels and finalizer off, remove the record
)

// Values of plan.AdoptedAnnotation: whether the finalizer was there before, so that an undo leaves
// the object as it was.
const (
	AdoptedWithout = "without-finalizer"
	AdoptedWith    = "with-finalizer"
)

// AdoptingAnnotation is on a volume that is being adopted. It names the node whose call adopts it,
// so that of two nodes one goes on.
const AdoptingAnnotation = "hostpath-provisioner/adopting"

// Reasons of refusals that a flag overrides, or that have a hint.
const (
	ReasonNotAlias   = "NotAlias"
	ReasonNoAffinity = "NoAffinity"
	ReasonRunning    = "StillRunning"
	ReasonNotKnown   = "NotKnownToBeStopped"
	ReasonOutside    = "MayRunOutside"
	ReasonReleased   = "AboutToBeRemoved"
	ReasonCSI        = "CSISource"

	ReasonDriverRuns     = "DriverRuns"
	ReasonDriverNotKnown = "DriverNotKnownToBeStopped"
	ReasonUsed           = "InUse"

	ReasonDenied = "Denied" // by the API server: the kubeconfig's rights, or a policy
)

// Overrides is what the operator says on the command line.
type Overrides struct {
	HasData  bool     // volumes without affinity: this node has their data
	Stopped  []string // provisioners whose program is stopped, whatever the cluster shows
	Outside  bool     // no other program runs outside of the cluster, where nothing shows it
	Released bool     // volumes too that are removed as soon as they are adopted
}

// Facts is everything that a decision about a volume of another system depends on.
type Facts struct {
	plan.Self
	Volume     *corev1.PersistentVolume
	Pool       plan.Pool
	NodeLabels map[string]string
	Record     *record.Record // nil: the disk has no record of it
	Unreadable string         // why the record cannot be read, "" if it can or there is none
	Other      string         // another volume with the same directory, "" if there is none
	Shown      string         // where else its directory, or a part of it, is mounted, "" if nowhere
	Unusable   string         // why the directory is not one that can be adopted, "" if it is
	Running    string         // what shows that the other program runs, "" if nothing does
	NotKnown   string         // why that is not known, "" if it is
	Overrides  Overrides
	Claim      *corev1.PersistentVolumeClaim // that it is bound to, by UID; nil if there is none

	// Of volumes of a CSI driver only.
	ReadOnly  bool   // as its object says
	Used      string // a pod that uses its claim, "" if none does
	ClaimGone bool   // that the phase may not say yet
}

// Verdict is what becomes of one volume.
type Verdict struct {
	Action  plan.Action
	Reason  string   // one of the Adopt reasons, or ""
	Message string   // why, for Refuse
	Notes   []string // what its owner should know, for Adopt
	Stale   bool     // for Refuse: the record proves nothing, another node has adopted the volume
}

type rule func(Facts) (Verdict, bool)

// adoptRules is the specification: the first rule that applies decides. What is not about this pool
// and node comes first, then what no flag can change, then what a flag overrides.
// TestAdoptionInOrder has what each tells the operator, in this order.
var adoptRules = []rule{
	sourceCSI,
	notInPool,
	onAnotherNode,
	madeByUs,
	makerUnknown,
	notAnAlias,
	identityMismatch,
	blockVolume,
	beingDeleted,
	neverBound,
	pathNotCanonical,
	adoptedElsewhere,
	beingAdoptedElsewhere,
	alreadyRecorded,
	directoryShared,
	directoryUnusable,
	mountedElsewhere,
	noAffinity,
	stillRunning,
	mayRunOutside,
	aboutToBeRemoved,
}

// ForAdoption decides whether this node takes responsibility for a volume that another system made.
func ForAdoption(f Facts) Verdict {
	return plan.Decide(adoptRules, f, Verdict{Action: Adopt, Notes: append(notes(f), sizeNotes(f)...)})
}

func refuse(applies bool, reason, format string, args ...any) (Verdict, bool) {
	return Verdict{Action: plan.Refuse, Reason: reason, Message: fmt.Sprintf(format, args...)}, applies
}

// sourceCSI: kubelet calls the driver that the object names, whatever is on the disk. A handle that
// begins with "csi" is one of an inline volume, which ends with its pod.
func sourceCSI(f Facts) (Verdict, bool) {
	csi := f.Volume.Spec.CSI
	if csi == nil || csi.Driver != plan.KubevirtCSI || f.Elsewhere() {
		return Verdict{Action: plan.Ignore}, csi != nil
	}
	if strings.HasPrefix(csi.VolumeHandle, "csi") {
		return refuse(true, "", "handle %q is one of an inline volume, which its pod takes along", csi.VolumeHandle)
	}
	return refuse(true, ReasonCSI, "source csi: kubelet asks driver %s for it, not this host's disk", csi.Driver)
}

func notInPool(f Facts) (Verdict, bool) {
	at := plan.PathOf(f.Volume)
	inside := at != "" && (path.Clean(at) == f.Pool.Path || strings.HasPrefix(path.Clean(at), f.Pool.Path+"/") || strings.HasPrefix(at, f.Pool.Path+"/"))
	return Verdict{Action: plan.Ignore}, !inside
}

// onAnotherNode: pools have the same path on many nodes, and so do their volumes.
func onAnotherNode(f Facts) (Verdict, bool) {
	return Verdict{Action: plan.Ignore}, f.Elsewhere()
}

func madeByUs(f Facts) (Verdict, bool) {
	return Verdict{Action: plan.Ignore}, f.Volume.Annotations[plan.ProvisionedBy] == f.Provisioner
}

func makerUnknown(f Facts) (Verdict, bool) {
	return refuse(f.Volume.Annotations[plan.ProvisionedBy] == "", "", "nothing says which program made it: no annotation %s", plan.ProvisionedBy)
}

func notAnAlias(f Facts) (Verdict, bool) {
	by := f.Volume.Annotations[plan.ProvisionedBy]
	return refuse(!slices.Contains(f.Aliases, by), ReasonNotAlias, "its provisioner %q is not one of this node's aliases", by)
}

// identityMismatch reads the one annotation as each system means it. MaZderMind ran where the data
// is; microk8s made directories on other nodes too, and says where by the affinity alone.
func identityMismatch(f Facts) (Verdict, bool) {
	identity, by := f.Volume.Annotations[plan.HostPathIdentity], f.Volume.Annotations[plan.ProvisionedBy]
	switch by {
	case plan.Kubevirt:
		return refuse(identity != plan.Kubevirt, "", "its %s is %q, and kubevirt writes %q", plan.HostPathIdentity, identity, plan.Kubevirt)
	case plan.MaZderMind:
		return refuse(identity != f.Node, "", "its %s is %q: it was made on that node, not on %s", plan.HostPathIdentity, identity, f.Node)
	}
	return Verdict{}, false
}

func blockVolume(f Facts) (Verdict, bool) {
	mode := f.Volume.Spec.VolumeMode
	return refuse(mode != nil && *mode == corev1.PersistentVolumeBlock, "", "volumeMode Block")
}

func beingDeleted(f Facts) (Verdict, bool) {
	return refuse(f.Volume.DeletionTimestamp != nil, "", "it is being deleted")
}

func neverBound(f Facts) (Verdict, bool) {
	ref := f.Volume.Spec.ClaimRef
	return refuse(ref == nil || ref.UID == "", "", "no claim was bound to it, so nothing says whose data it is")
}

// pathNotCanonical: a volume is one directory right in the pool, and its object says so in the
// plain form. The path is compared, and never opened.
func pathNotCanonical(f Facts) (Verdict, bool) {
	at := plan.PathOf(f.Volume)
	switch below, in := strings.CutPrefix(at, f.Pool.Path+"/"); {
	case slices.Contains(strings.Split(at, "/"), ".."):
		return refuse(true, "", "its path %q has a \"..\"", at)
	case path.Clean(at) == f.Pool.Path:
		return refuse(true, "", "its path is the pool itself")
	case !in || path.Clean(at) != at:
		return refuse(true, "", "its path %q is not in the plain form, which is %q", at, path.Clean(at))
	case strings.Contains(below, "/"):
		return refuse(true, "", "%q is not right in the pool: a volume is one directory below %s", at, f.Pool.Path)
	case strings.HasPrefix(below, "."):
		return refuse(true, "", "%q begins with a dot: such names are reserved for the daemon", below)
	}
	return Verdict{}, false
}

// DirectoryOf is the directory that a volume of this pool has by its object, "" if it is none that
// could be adopted.
func DirectoryOf(pool plan.Pool, v *corev1.PersistentVolume) string {
	f := Facts{Volume: v, Pool: pool}
	if _, elsewhere := notInPool(f); elsewhere {
		return ""
	}
	if _, crooked := pathNotCanonical(f); crooked {
		return ""
	}
	return strings.TrimPrefix(plan.PathOf(v), pool.Path+"/")
}

// EntryOf is the entry of the pool that a volume lies in or below, however its path is written:
// what removes that entry removes the volume's data.
func EntryOf(pool plan.Pool, v *corev1.PersistentVolume) string {
	below, in := strings.CutPrefix(path.Clean(plan.PathOf(v)), pool.Path+"/")
	if !in {
		return ""
	}
	entry, _, _ := strings.Cut(below, "/")
	return entry
}

func adoptedElsewhere(f Facts) (Verdict, bool) {
	v := f.Volume
	switch node := v.Labels[plan.NodeLabel]; {
	case v.Labels[plan.PoolLabel] == "" || labelledFor(v, f.Pool, f.Node):
		return Verdict{}, false
	case node != "":
		verdict, _ := refuse(true, "", "it is of pool %s of node %s already", v.Labels[plan.PoolLabel], node)
		verdict.Stale = f.staleRecord()
		return verdict, true
	default:
		return refuse(true, "", "it is of pool %s with scope %s already", v.Labels[plan.PoolLabel], v.Labels[plan.ScopeLabel])
	}
}

// staleRecord: this node's call wrote it, and another node's call has marked the object. Who is
// known by another name since has the older name in its records.
func (f Facts) staleRecord() bool {
	return f.Record != nil && f.Record.Place == record.InPool && f.Record.Node == f.Node && f.Volume.Annotations[plan.AdoptedAnnotation] != ""
}

// beingAdoptedElsewhere: a call that was cut off there goes on there.
func beingAdoptedElsewhere(f Facts) (Verdict, bool) {
	by := f.Volume.Annotations[AdoptingAnnotation]
	return refuse(by != "" && by != adopting(f.Pool, f.Node), "", "%q is adopting it: run adopt there again, or adopt --undo", by)
}

// alreadyRecorded: a record without labels is left by a call that was cut off, and the next one
// goes on.
func alreadyRecorded(f Facts) (Verdict, bool) {
	switch {
	case f.Unreadable != "":
		return refuse(true, "", "%s", f.Unreadable)
	case f.Record == nil:
		return Verdict{}, false
	case f.Record.Place != record.InPool:
		return refuse(true, "", "its directory is %s", f.Record.Place.Describe())
	case f.Record.Directory != DirectoryOf(f.Pool, f.Volume) || f.Record.ClaimUID != string(f.Volume.Spec.ClaimRef.UID):
		return refuse(true, "", "it is recorded as directory %q of claim %s/%s", f.Record.Directory, f.Record.Namespace, f.Record.Claim)
	}
	// The daemon takes the finalizer off one whose policy keeps the data.
	held := slices.Contains(f.Volume.Finalizers, plan.Finalizer) || f.Record.Unheld
	complete := labelledFor(f.Volume, f.Pool, f.Node) && held
	return Verdict{Action: Ours}, complete
}

func directoryShared(f Facts) (Verdict, bool) {
	return refuse(f.Other != "", "", "volume %s lies in the same directory", f.Other)
}

func directoryUnusable(f Facts) (Verdict, bool) {
	return refuse(f.Unusable != "", "", "%s", f.Unusable)
}

// mountedElsewhere: programs may use it under that path, which no object shows.
func mountedElsewhere(f Facts) (Verdict, bool) {
	return refuse(f.Shown != "", "", "its directory is mounted at %s as well", f.Shown)
}

func noAffinity(f Facts) (Verdict, bool) {
	switch {
	case f.Overrides.HasData || f.named():
		return Verdict{}, false
	case !plan.HasAffinity(f.Volume):
		return refuse(true, ReasonNoAffinity, "no affinity: nothing says which node has its data")
	default:
		return refuse(true, ReasonNoAffinity, "its affinity does not name one node: nothing says which node has its data")
	}
}

func stillRunning(f Facts) (Verdict, bool) {
	by := f.Volume.Annotations[plan.ProvisionedBy]
	if slices.Contains(f.Overrides.Stopped, by) || f.begun() { // the operator was asked before
		return Verdict{}, false
	}
	if f.Running != "" {
		return refuse(true, ReasonRunning, "%s may still run: %s", by, f.Running)
	}
	return refuse(f.NotKnown != "", ReasonNotKnown, "it is not known whether %s still runs: %s", by, f.NotKnown)
}

// begun: a call of this node was cut off.
func (f Facts) begun() bool {
	return f.Record != nil || f.Volume.Annotations[AdoptingAnnotation] == adopting(f.Pool, f.Node)
}

// mayRunOutside: torchbox's program takes a kubeconfig, and runs on any host then. A name that is
// not known may be the -name of one.
func mayRunOutside(f Facts) (Verdict, bool) {
	by := f.Volume.Annotations[plan.ProvisionedBy]
	system, known := plan.SystemOf(by)
	if known && !system.Outside || f.Overrides.Outside || slices.Contains(f.Overrides.Stopped, by) || f.begun() {
		return Verdict{}, false
	}
	return refuse(true, ReasonOutside, "%s can run outside of the cluster, where nothing shows it", by)
}

// aboutToBeRemoved: a released volume with policy Delete is removed as soon as the daemon is
// responsible for it.
func aboutToBeRemoved(f Facts) (Verdict, bool) {
	phase := f.Volume.Status.Phase
	removes := f.Volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
	if f.ClaimGone { // which the phase may not say yet
		phase = corev1.VolumeReleased
	}
	over := phase == corev1.VolumeReleased || phase == corev1.VolumeFailed
	return refuse(over && removes && !f.Overrides.Released, ReasonReleased, "it is %s and its policy is Delete: its data would be removed once it is adopted", phase)
}

func sizeNotes(f Facts) []string {
	size, capacity := Size(f.Volume, f.Claim), f.Volume.Spec.Capacity[corev1.ResourceStorage]
	if size.Cmp(capacity) == 0 {
		return nil
	}
	if f.Claim == nil {
		return []string{fmt.Sprintf(
			"its capacity is %s, and its claim is gone: the pool keeps no more for it than it has in use", capacity.String())}
	}
	return []string{fmt.Sprintf(
		"its capacity is %s, and the pool keeps %s for it, as its claim requests",
		capacity.String(), size.String())}
}

func notes(f Facts) []string {
	var notes []string
	if host := f.Volume.Spec.HostPath; host != nil && (host.Type == nil || *host.Type != corev1.HostPathDirectory) {
		kind := "unset"
		if host.Type != nil && *host.Type != "" {
			kind = string(*host.Type)
		}
		notes = append(notes, fmt.Sprintf("its hostPath type is %s: where the storage is missing, a pod gets an empty directory on the host's own disk", kind))
	}
	if plan.HasAffinity(f.Volume) && !plan.SelectsNode(f.Volume.Spec.NodeAffinity.Required, f.Node, f.NodeLabels) {
		notes = append(notes, fmt.Sprintf("its affinity has the node's name where the label %s has %q: no pod that uses it can be scheduled", plan.HostnameLabel, f.NodeLabels[plan.HostnameLabel]))
	}
	if f.Volume.Status.Phase == corev1.VolumeFailed {
		notes = append(notes, "it is Failed: its data is removed when the object is deleted")
	}
	return notes
}
