package plan

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
)

// Actions for a volume of another system, beside Ignore and Refuse.
const (
	Adopt  Action = "adopt"   // take responsibility: record, labels, finalizer
	Ours   Action = "ours"    // it is recorded and labelled already
	Return Action = "give up" // take labels and finalizer off, forget the record
)

// AdoptedAnnotation is on a volume that was adopted; it says whether the finalizer was there before,
// so that who gives it up leaves the object as it was. AdoptingAnnotation is on one that is being adopted:
// it names the node whose call has it, so that of two nodes one goes on.
const (
	AdoptedAnnotation  = "hostpath-provisioner/adopted"
	AdoptedWithout     = "without-finalizer"
	AdoptedWith        = "with-finalizer"
	AdoptingAnnotation = "hostpath-provisioner/adopting"
)

// Reasons that an operator's word can outweigh, and those that have a hint.
const (
	AdoptNotAlias   = "NotAlias"
	AdoptNoAffinity = "NoAffinity"
	AdoptRunning    = "StillRunning"
	AdoptNotKnown   = "NotKnownToBeStopped"
	AdoptOutside    = "MayRunOutside"
	AdoptReleased   = "AboutToBeRemoved"
	AdoptCSI        = "CSISource"

	AdoptDriverRuns     = "DriverRuns"
	AdoptDriverNotKnown = "DriverNotKnownToBeStopped"
	AdoptUsed           = "InUse"
)

// Told is what the operator says on the command line.
type Told struct {
	HasData  bool     // volumes without affinity: this node has their data
	Stopped  []string // provisioners whose program is stopped, whatever the cluster shows
	Outside  bool     // no other program runs outside of the cluster, where nothing shows it
	Released bool     // volumes too that are removed as soon as they are adopted
}

// AdoptFacts is everything that a decision about a volume of another system depends on.
type AdoptFacts struct {
	Self
	Volume     *corev1.PersistentVolume
	Pool       Pool
	NodeLabels map[string]string
	Record     *record.Record // nil: the disk has no record of it
	Unreadable string         // why the record cannot be read, "" if it can or there is none
	Other      string         // another volume with the same directory, "" if there is none
	Shown      string         // where else its directory, or a part of it, is mounted, "" if nowhere
	Unusable   string         // why the directory is not one that can be adopted, "" if it is
	Running    string         // what shows that the other program runs, "" if nothing does
	NotKnown   string         // why nobody can tell, "" if one can
	Told       Told

	// Of volumes of a CSI driver only.
	ReadOnly  bool   // as its object says
	Used      string // a pod that uses its claim, "" if none does
	ClaimGone bool   // the claim, by UID, does not exist any more
}

// AdoptVerdict is what becomes of one volume.
type AdoptVerdict struct {
	Action  Action
	Reason  string   // one of the Adopt reasons, or ""
	Message string   // why, for Refuse
	Notes   []string // what its owner should know, for Adopt
	Stale   bool     // for Refuse: the record proves nothing, another node has adopted the volume
}

type adoptRule func(AdoptFacts) (AdoptVerdict, bool)

// adoptRules is the specification: the first rule that applies decides. What is not about this pool
// and node comes first, then what no word can change, then what takes the operator's word.
var adoptRules = []adoptRule{
	csiSource, notInPool, onAnotherNode, madeByUs, madeByNobody, notAnAlias, wrongIdentity,
	adoptBlock, adoptDeleting, adoptNoClaim, crookedPath, othersAdopted, othersAdopting,
	adoptRecord, sharedDirectory, unusableDirectory, mountedElsewhere, noAffinity, stillRunning, mayRunOutside, aboutToBeRemoved,
}

// ForAdoption decides whether this node takes responsibility for a volume that another system made.
func ForAdoption(f AdoptFacts) AdoptVerdict {
	for _, rule := range adoptRules {
		if v, applies := rule(f); applies {
			return v
		}
	}
	return AdoptVerdict{Action: Adopt, Notes: adoptNotes(f)}
}

func adoptRefuse(applies bool, reason, format string, args ...any) (AdoptVerdict, bool) {
	return AdoptVerdict{Action: Refuse, Reason: reason, Message: fmt.Sprintf(format, args...)}, applies
}

// csiSource: kubelet calls the driver that the object names, whatever is on the disk. A handle that
// begins with "csi" is one of an inline volume, which ends with its pod.
func csiSource(f AdoptFacts) (AdoptVerdict, bool) {
	csi := f.Volume.Spec.CSI
	if csi == nil || csi.Driver != KubevirtCSI || f.Elsewhere() {
		return AdoptVerdict{Action: Ignore}, csi != nil
	}
	if strings.HasPrefix(csi.VolumeHandle, "csi") {
		return adoptRefuse(true, "", "handle %q is one of an inline volume, which its pod takes along", csi.VolumeHandle)
	}
	return adoptRefuse(true, AdoptCSI, "source csi: kubelet asks driver %s for it, not this host's disk", csi.Driver)
}

func notInPool(f AdoptFacts) (AdoptVerdict, bool) {
	at := volumePath(f.Volume)
	inside := at != "" && (path.Clean(at) == f.Pool.Path || strings.HasPrefix(path.Clean(at), f.Pool.Path+"/") || strings.HasPrefix(at, f.Pool.Path+"/"))
	return AdoptVerdict{Action: Ignore}, !inside
}

// onAnotherNode: pools have the same path on many nodes, and so do their volumes.
func onAnotherNode(f AdoptFacts) (AdoptVerdict, bool) {
	return AdoptVerdict{Action: Ignore}, f.Elsewhere()
}

func madeByUs(f AdoptFacts) (AdoptVerdict, bool) {
	return AdoptVerdict{Action: Ignore}, f.Volume.Annotations[ProvisionedBy] == f.Provisioner
}

func madeByNobody(f AdoptFacts) (AdoptVerdict, bool) {
	return adoptRefuse(f.Volume.Annotations[ProvisionedBy] == "", "", "nothing says which program made it: no annotation %s", ProvisionedBy)
}

func notAnAlias(f AdoptFacts) (AdoptVerdict, bool) {
	by := f.Volume.Annotations[ProvisionedBy]
	return adoptRefuse(!slices.Contains(f.Aliases, by), AdoptNotAlias, "its provisioner %q is not one of this node's aliases", by)
}

// wrongIdentity reads the one annotation as each system means it. MaZderMind ran where the data is;
// microk8s made directories on other nodes too, and says where by the affinity alone.
func wrongIdentity(f AdoptFacts) (AdoptVerdict, bool) {
	identity, by := f.Volume.Annotations[HostPathIdentity], f.Volume.Annotations[ProvisionedBy]
	switch by {
	case Kubevirt:
		return adoptRefuse(identity != Kubevirt, "", "its %s is %q, and kubevirt writes %q", HostPathIdentity, identity, Kubevirt)
	case MaZderMind:
		return adoptRefuse(identity != f.Node, "", "its %s is %q: it was made on that node, not on %s", HostPathIdentity, identity, f.Node)
	}
	return AdoptVerdict{}, false
}

func adoptBlock(f AdoptFacts) (AdoptVerdict, bool) {
	mode := f.Volume.Spec.VolumeMode
	return adoptRefuse(mode != nil && *mode == corev1.PersistentVolumeBlock, "", "volumeMode Block")
}

func adoptDeleting(f AdoptFacts) (AdoptVerdict, bool) {
	return adoptRefuse(f.Volume.DeletionTimestamp != nil, "", "it is being deleted")
}

func adoptNoClaim(f AdoptFacts) (AdoptVerdict, bool) {
	ref := f.Volume.Spec.ClaimRef
	return adoptRefuse(ref == nil || ref.UID == "", "", "no claim was bound to it, so nothing says whose data it is")
}

// crookedPath: a volume is one directory right in the pool, and its object says so in the plain form.
// The path is compared; nobody opens it.
func crookedPath(f AdoptFacts) (AdoptVerdict, bool) {
	at := volumePath(f.Volume)
	switch below, in := strings.CutPrefix(at, f.Pool.Path+"/"); {
	case slices.Contains(strings.Split(at, "/"), ".."):
		return adoptRefuse(true, "", "its path %q has a \"..\"", at)
	case path.Clean(at) == f.Pool.Path:
		return adoptRefuse(true, "", "its path is the pool itself")
	case !in || path.Clean(at) != at:
		return adoptRefuse(true, "", "its path %q is not in the plain form, which is %q", at, path.Clean(at))
	case strings.Contains(below, "/"):
		return adoptRefuse(true, "", "%q is not right in the pool: a volume is one directory below %s", at, f.Pool.Path)
	case strings.HasPrefix(below, "."):
		return adoptRefuse(true, "", "%q begins with a dot: such names are reserved for the daemon", below)
	}
	return AdoptVerdict{}, false
}

// PathOf is the path that a volume object says, "" for a source that has none on the host.
func PathOf(v *corev1.PersistentVolume) string { return volumePath(v) }

// AdoptDirectory is the directory that a volume of this pool has by its object, "" if it is none that
// could be adopted.
func AdoptDirectory(pool Pool, v *corev1.PersistentVolume) string {
	f := AdoptFacts{Volume: v, Pool: pool}
	if _, elsewhere := notInPool(f); elsewhere {
		return ""
	}
	if _, crooked := crookedPath(f); crooked {
		return ""
	}
	return strings.TrimPrefix(volumePath(v), pool.Path+"/")
}

// EntryOf is the entry of the pool that a volume lies in or below, however its path is written: whoever
// removes that entry removes the volume's data.
func EntryOf(pool Pool, v *corev1.PersistentVolume) string {
	below, in := strings.CutPrefix(path.Clean(volumePath(v)), pool.Path+"/")
	if !in {
		return ""
	}
	entry, _, _ := strings.Cut(below, "/")
	return entry
}

func othersAdopted(f AdoptFacts) (AdoptVerdict, bool) {
	v := f.Volume
	switch node := v.Labels[NodeLabel]; {
	case v.Labels[PoolLabel] == "" || labelledFor(v, f.Pool, f.Node):
		return AdoptVerdict{}, false
	case node != "":
		verdict, _ := adoptRefuse(true, "", "it is of pool %s of node %s already", v.Labels[PoolLabel], node)
		verdict.Stale = f.staleRecord()
		return verdict, true
	default:
		return adoptRefuse(true, "", "it is of pool %s with scope %s already", v.Labels[PoolLabel], v.Labels[ScopeLabel])
	}
}

// staleRecord: this node's call wrote it, and another node's call has marked the object. Who is known by
// another name since has the older name in its records.
func (f AdoptFacts) staleRecord() bool {
	return f.Record != nil && f.Record.Place == record.InPool && f.Record.Node == f.Node && f.Volume.Annotations[AdoptedAnnotation] != ""
}

// othersAdopting: a call that was cut off there goes on there.
func othersAdopting(f AdoptFacts) (AdoptVerdict, bool) {
	by := f.Volume.Annotations[AdoptingAnnotation]
	return adoptRefuse(by != "" && by != adopting(f.Pool, f.Node), "", "%q is adopting it: run adopt there again, or adopt --undo", by)
}

// adoptRecord: a record without labels is left by a call that was cut off, and the next one goes on.
func adoptRecord(f AdoptFacts) (AdoptVerdict, bool) {
	switch {
	case f.Unreadable != "":
		return adoptRefuse(true, "", "%s", f.Unreadable)
	case f.Record == nil:
		return AdoptVerdict{}, false
	case f.Record.Place != record.InPool:
		return adoptRefuse(true, "", "its directory is %s", f.Record.Place.Describe())
	case f.Record.Directory != AdoptDirectory(f.Pool, f.Volume) || f.Record.ClaimUID != string(f.Volume.Spec.ClaimRef.UID):
		return adoptRefuse(true, "", "it is recorded as directory %q of claim %s/%s", f.Record.Directory, f.Record.Namespace, f.Record.Claim)
	}
	complete := labelledFor(f.Volume, f.Pool, f.Node) && slices.Contains(f.Volume.Finalizers, Finalizer)
	return AdoptVerdict{Action: Ours}, complete
}

func sharedDirectory(f AdoptFacts) (AdoptVerdict, bool) {
	return adoptRefuse(f.Other != "", "", "volume %s lies in the same directory", f.Other)
}

func unusableDirectory(f AdoptFacts) (AdoptVerdict, bool) {
	return adoptRefuse(f.Unusable != "", "", "%s", f.Unusable)
}

// mountedElsewhere: what is there may be used under that path by what no object tells.
func mountedElsewhere(f AdoptFacts) (AdoptVerdict, bool) {
	return adoptRefuse(f.Shown != "", "", "its directory is mounted at %s as well", f.Shown)
}

func noAffinity(f AdoptFacts) (AdoptVerdict, bool) {
	switch {
	case f.Told.HasData || f.named():
		return AdoptVerdict{}, false
	case !hasAffinity(f.Volume):
		return adoptRefuse(true, AdoptNoAffinity, "no affinity: nothing says which node has its data")
	default:
		return adoptRefuse(true, AdoptNoAffinity, "its affinity does not name one node: nothing says which node has its data")
	}
}

func stillRunning(f AdoptFacts) (AdoptVerdict, bool) {
	by := f.Volume.Annotations[ProvisionedBy]
	if slices.Contains(f.Told.Stopped, by) || f.begun() { // the operator was asked before
		return AdoptVerdict{}, false
	}
	if f.Running != "" {
		return adoptRefuse(true, AdoptRunning, "%s may still run: %s", by, f.Running)
	}
	return adoptRefuse(f.NotKnown != "", AdoptNotKnown, "it is not known whether %s still runs: %s", by, f.NotKnown)
}

// begun: a call of this node was cut off.
func (f AdoptFacts) begun() bool {
	return f.Record != nil || f.Volume.Annotations[AdoptingAnnotation] == adopting(f.Pool, f.Node)
}

// mayRunOutside: torchbox's program takes a kubeconfig, and runs on any host then. A name that is not known may be
// the -name of one.
func mayRunOutside(f AdoptFacts) (AdoptVerdict, bool) {
	by := f.Volume.Annotations[ProvisionedBy]
	system, known := SystemOf(by)
	if known && !system.outside || f.Told.Outside || slices.Contains(f.Told.Stopped, by) || f.begun() {
		return AdoptVerdict{}, false
	}
	return adoptRefuse(true, AdoptOutside, "%s can run outside of the cluster, where nothing shows it", by)
}

// aboutToBeRemoved: a released volume with policy Delete is removed as soon as somebody is responsible.
func aboutToBeRemoved(f AdoptFacts) (AdoptVerdict, bool) {
	phase := f.Volume.Status.Phase
	removes := f.Volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
	if f.ClaimGone { // which the phase may not say yet
		phase = corev1.VolumeReleased
	}
	over := phase == corev1.VolumeReleased || phase == corev1.VolumeFailed
	return adoptRefuse(over && removes && !f.Told.Released, AdoptReleased, "it is %s and its policy is Delete: its data would be removed once it is adopted", phase)
}

func adoptNotes(f AdoptFacts) []string {
	var notes []string
	if host := f.Volume.Spec.HostPath; host != nil && (host.Type == nil || *host.Type != corev1.HostPathDirectory) {
		kind := "unset"
		if host.Type != nil && *host.Type != "" {
			kind = string(*host.Type)
		}
		notes = append(notes, fmt.Sprintf("its hostPath type is %s: where the storage is missing, a pod gets an empty directory on the host's own disk", kind))
	}
	if hasAffinity(f.Volume) && !matches(f.Volume.Spec.NodeAffinity.Required, f.Node, f.NodeLabels) {
		notes = append(notes, fmt.Sprintf("its affinity has the node's name where the label %s has %q: no pod that uses it can be scheduled", HostnameLabel, f.NodeLabels[HostnameLabel]))
	}
	if f.Volume.Status.Phase == corev1.VolumeFailed {
		notes = append(notes, "it is Failed: its data is removed when the object is deleted")
	}
	return notes
}
