package plan

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// Actions for a volume, beside Ignore, Wait and Refuse.
const (
	Delete  Action = "delete"   // directory to the trash, then the object
	Archive Action = "archive"  // directory to the archive, then the object
	Retain  Action = "retain"   // keep the directory, let the object go
	LetGo   Action = "let go"   // the directory is gone already: only the object is left
	PutBack Action = "put back" // the object is in use again: its directory comes out of the trash
	Unhold  Action = "unhold"   // our finalizer comes off: the data stays without the object, too
	Hold    Action = "hold"     // our finalizer comes on again: the data goes with the object
)

// VolumeFacts is everything that a decision about a volume object depends on.
type VolumeFacts struct {
	Self
	Volume      *corev1.PersistentVolume // read from the API just now
	ClaimExists bool                     // the claim it is bound to exists, by UID
	Elsewhere   bool                     // that claim has another volume
	Pool        *Pool                    // the pool its label names, nil if this node has none of that name
	Closed      string                   // why the pool takes no work, "" if it is open
	Record      *record.Record           // nil: the disk has no record of it
	Unreadable  string                   // why the record cannot be read, "" if it can or there is none
	Silent      bool                     // the pool is shared, and this daemon neither works in it nor speaks for all
	Foreign     bool                     // there is a directory where the object points, and no record of it
}

type volumeRule func(VolumeFacts) (Verdict, bool)

// volumeRules is the specification: the first rule that applies decides. No rule that destroys
// stands before one that protects.
var volumeRules = []volumeRule{
	provisionerMissing, volumeNotOurs, boundButRemoved, movedButKept, wronglyHeld, nothingToDo,
	volumeNotLeading, retained, stillInUse, volumeClaimExists, volumePoolMissing, volumePoolClosed,
	recordUnreadable, notRecorded, pathMismatch, goneAlready, neverBound, archived,
}

// ForVolume decides what this node does about a volume object.
func ForVolume(f VolumeFacts) Verdict {
	v := Decide(volumeRules, f, Verdict{Action: Delete, Reason: ReasonDeleted})
	if OnEveryNode(f.Volume) && v.Message != "" { // other nodes may say something else
		v.Message = "node " + f.Node + ": " + v.Message
	}
	return v
}

// NeedsWork reports, from the object alone, whether a volume can need any action: most are simply
// bound. One that is being deleted without our finalizer waits for others, our part in it is done.
func NeedsWork(v *corev1.PersistentVolume) bool {
	if v.DeletionTimestamp != nil {
		return slices.Contains(v.Finalizers, Finalizer)
	}
	return Unclaimed(v)
}

// MisHeld reports, from the object alone, whether our finalizer is to come off, or on again. An
// object whose data is kept needs no daemon to let it go, and who deletes it does not wait for a
// node that is off (as sig-storage-lib-external-provisioner does, controller.go, syncVolume). Of
// scope every-node all nodes would have to note that first: there it stays.
func MisHeld(v *corev1.PersistentVolume) bool {
	bound := v.Status.Phase == corev1.VolumeBound
	ours := v.Labels[PoolLabel] != "" && !OnEveryNode(v)
	if v.DeletionTimestamp != nil || !ours || !bound && !Unclaimed(v) {
		return false
	}
	if !slices.Contains(v.Finalizers, Finalizer) {
		return bound && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
	}
	return v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete
}

// NotedLate reports whether the record of a volume that has our finalizer again does not say so: a
// daemon died in between.
func NotedLate(v *corev1.PersistentVolume, r record.Record) bool {
	return r.Unheld && v.DeletionTimestamp == nil && v.Status.Phase == corev1.VolumeBound &&
		v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
}

// wronglyHeld: a finalizer that people took off is not put on again, the record tells. One of a CSI
// driver's that adopt replaced stays held, because adopt --undo deletes our object for a moment.
func wronglyHeld(f VolumeFacts) (Verdict, bool) {
	v, r := f.Volume, f.Record
	if r == nil || !MisHeld(v) && !NotedLate(v, *r) {
		return Verdict{}, false
	}
	if f.Silent || f.Pool == nil || f.Closed != "" || f.Unreadable != "" ||
		r.Place != record.InPool || r.Replaced != "" {
		return Verdict{}, false
	}
	switch {
	case !f.points(), !home(v, f.Pool.Scope, f.Node):
		return Verdict{}, false
	case MisHeld(v) && slices.Contains(v.Finalizers, Finalizer):
		return Verdict{Action: Unhold}, true
	default:
		return Verdict{Action: Hold}, r.Unheld
	}
}

// Unclaimed reports whether the claim of a volume is gone. It is Failed where
// kube-controller-manager tried to remove it, which took it for its own for a while.
func Unclaimed(v *corev1.PersistentVolume) bool {
	return v.Status.Phase == corev1.VolumeReleased || v.Status.Phase == corev1.VolumeFailed
}

// Going reports, from the object alone, whether it is to go with its data.
func Going(v *corev1.PersistentVolume) bool {
	return v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete && !InUse(v) &&
		(v.DeletionTimestamp != nil || !forAnother(v))
}

// Leaving reports, from the object alone, whether it was let go with its data and is there still:
// others, pv-protection for one, hold it for a moment. What of the volume was discarded need not
// wait for them.
func Leaving(v *corev1.PersistentVolume) bool {
	return v.DeletionTimestamp != nil && !slices.Contains(v.Finalizers, Finalizer) && Going(v)
}

// Older reports whether an object that is new to the daemon was not made by it just now: that would
// wait for its claim, by UID. An adopted one was recorded by another process.
func Older(v *corev1.PersistentVolume) bool {
	ref := v.Spec.ClaimRef
	return Adopted(v) || v.Status.Phase == corev1.VolumeBound ||
		v.Status.Phase == corev1.VolumeAvailable || ref == nil || ref.UID == ""
}

// Newer reports whether a resource version is later than another: they are numbers that only grow
// (Kubernetes 1.35, KEP-5504). Of others it returns unknown.
func Newer(a, b string, unknown bool) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	if errX != nil || errY != nil {
		return unknown
	}
	return x > y
}

// Adopted reports whether the record of a volume was written by a call of adopt.
func Adopted(v *corev1.PersistentVolume) bool { return v.Annotations[AdoptedAnnotation] != "" }

// MayLack reports, of an object that is to stay, whether its directory is where it should not be.
func MayLack(v *corev1.PersistentVolume, place record.Place) bool {
	switch v.Status.Phase {
	case corev1.VolumeBound:
		return place != record.InPool
	case corev1.VolumeAvailable, corev1.VolumePending, "":
		return place == record.InTrash || place == record.InArchive
	default:
		return false
	}
}

// Unattributed reports, from the object alone, whether it has the labels of a daemon and names no
// provisioner: a backup program or a hand took the annotation off.
func Unattributed(v *corev1.PersistentVolume) bool {
	return v.Labels[PoolLabel] != "" && v.Annotations[ProvisionedBy] == ""
}

// provisionerMissing: the object is a recorded volume's, and names no provisioner. Nobody removes
// it then: kube-controller-manager takes it for its own, and fails (pkg/volume/hostpath,
// host_path.go, newDeleter).
func provisionerMissing(f VolumeFacts) (Verdict, bool) {
	v, r := f.Volume, f.Record
	missing := Unattributed(v) && r != nil && f.Pool != nil && !f.Silent &&
		v.Spec.ClaimRef != nil && r.ClaimUID == string(v.Spec.ClaimRef.UID) && r.Directory == path.Base(PathOf(v)) &&
		(home(v, f.Pool.Scope, f.Node) || inherited(v, f.Pool.Scope))
	return Verdict{Action: Refuse, Reason: ReasonLabelsMissing, After: RemindEvery,
		Message: fmt.Sprintf("the object has no annotation %s: the volume is neither removed nor "+
			"expanded; set it to its class's provisioner (that of this daemon is %s)",
			ProvisionedBy, f.Provisioner)}, missing
}

func volumeNotOurs(f VolumeFacts) (Verdict, bool) {
	scope := ""
	if f.Pool != nil {
		scope = f.Pool.Scope
	}
	ours := home(f.Volume, scope, f.Node) || f.Record != nil && inherited(f.Volume, scope)
	if OnEveryNode(f.Volume) { // each node's that has, or could have, a directory of it
		ours = ours && (f.Record != nil || f.Foreign || f.Closed != "" || f.Unreadable != "" || derivable(f))
	}
	return Verdict{Action: Ignore}, !ours || !f.Serves(f.Volume.Annotations[ProvisionedBy])
}

// boundButRemoved: the volume was removed, and then the API server was restored to a day on which
// its claim had it, or an administrator gave it to another claim. What is whole is put back, of
// what is not it is said.
func boundButRemoved(f VolumeFacts) (Verdict, bool) {
	v, ref := f.Volume, f.Volume.Spec.ClaimRef
	if v.Status.Phase != corev1.VolumeBound || !f.ClaimExists || OnEveryNode(v) || f.Silent || f.Pool == nil || f.Closed != "" ||
		f.Unreadable != "" || f.Foreign {
		return Verdict{}, false
	}
	place := record.Nowhere
	if f.Record != nil {
		place = f.Record.Place
	}
	if place == record.InPool || !f.points() {
		return Verdict{}, false
	}
	claim := fmt.Sprintf("claim %s/%s", ref.Namespace, ref.Name)
	if f.wholeElsewhere() {
		return Verdict{Action: PutBack, Reason: ReasonPutBack, Message: fmt.Sprintf(
			"node %s: the volume of %s was being deleted and is in use again; its directory was restored", f.Node, claim)}, true
	}
	advice := "restore it from a backup"
	switch {
	case f.Record == nil:
		advice = "this pool has no record of it: look on the disk that the pool had before and on other nodes before you " + advice
	case place == record.Emptying:
		advice += ", or copy what is left there before the claim is deleted"
	}
	return Verdict{Action: Wait, Reason: ReasonVolumeLost, Message: fmt.Sprintf(
		"node %s: the directory %s of %s is %s; %s", f.Node, PathOf(v), claim, place.Describe(), advice)}, true
}

// movedButKept: the directory was moved out of the way, and before the object went an administrator
// set another policy, or took the claim out of the object so that another one can have it.
func movedButKept(f VolumeFacts) (Verdict, bool) {
	v := f.Volume
	if f.Silent || !f.wholeElsewhere() {
		return Verdict{}, false
	}
	why := ""
	switch {
	case v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
		why = "its reclaim policy is " + string(v.Spec.PersistentVolumeReclaimPolicy) + " now"
	case v.DeletionTimestamp == nil && forAnother(v):
		why = "another claim may have it now"
	default:
		return Verdict{}, false
	}
	node := ""
	if !OnEveryNode(v) { // of which each node says this with its name
		node = "node " + f.Node + ": "
	}
	return Verdict{Action: PutBack, Reason: ReasonPutBack, Message: node + "the volume was being deleted, and " + why + "; its directory was restored"}, true
}

// forAnother: without a claim a volume is Available, or is about to be.
func forAnother(v *corev1.PersistentVolume) bool {
	switch v.Status.Phase {
	case corev1.VolumeAvailable, corev1.VolumePending, "":
		return true
	default:
		return v.Spec.ClaimRef == nil
	}
}

// wholeElsewhere reports whether there is a directory to put back for this object.
func (f VolumeFacts) wholeElsewhere() bool {
	return f.Pool != nil && f.Closed == "" && f.Record != nil && f.Record.Whole() && f.points()
}

func nothingToDo(f VolumeFacts) (Verdict, bool) {
	return Verdict{Action: Ignore}, !NeedsWork(f.Volume)
}

// volumeNotLeading: one daemon removes the volumes of a shared pool.
func volumeNotLeading(f VolumeFacts) (Verdict, bool) { return Verdict{Action: Ignore}, f.Silent }

// retained: with any policy but Delete the data stays. Only an object that is being deleted is let
// go.
func retained(f VolumeFacts) (Verdict, bool) {
	if f.Volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		return Verdict{}, false
	}
	if f.Volume.DeletionTimestamp == nil || f.Volume.Status.Phase == corev1.VolumeBound || f.replacing() {
		return Verdict{Action: Ignore}, true
	}
	switch { // the record must learn that it is retained first
	case f.Pool != nil && f.Closed != "":
		return volumePoolClosed(f)
	case f.Unreadable != "":
		return recordUnreadable(f)
	}
	return Verdict{Action: Retain, Reason: ReasonRetained}, true
}

// replacing: adopt deletes the object of a claim that is there, and makes another one. Nobody let it
// go, also where it was made just now and is not bound yet; a record that said so would end what
// the next call of adopt has to finish.
func (f VolumeFacts) replacing() bool {
	return f.Volume.Annotations[HeldAnnotation] != "" && f.ClaimExists
}

// stillInUse: an object deleted before its claim waits for the claim; one that its claim never
// reached (Available, after claimRef was cleared) has no claim to wait for. One that is Released
// and has no claim any more is given to another one.
func stillInUse(f VolumeFacts) (Verdict, bool) {
	v := f.Volume
	free := false
	switch v.Status.Phase {
	case corev1.VolumeReleased, corev1.VolumeFailed:
		free = v.Spec.ClaimRef != nil || v.DeletionTimestamp != nil
	case corev1.VolumeAvailable:
		free = v.Spec.ClaimRef == nil
	}
	return Verdict{Action: Ignore}, !free
}

// volumeClaimExists does not trust the phase alone: after a restore of etcd the two can disagree.
func volumeClaimExists(f VolumeFacts) (Verdict, bool) {
	ref := f.Volume.Spec.ClaimRef
	if !f.ClaimExists || ref == nil || f.neverBound() {
		return Verdict{}, false
	}
	return Verdict{Action: Wait, Reason: ReasonClaimExists, After: retryAfter,
		Message: fmt.Sprintf("the volume is %s, yet its claim %s/%s exists; nothing is removed", f.Volume.Status.Phase, ref.Namespace, ref.Name)}, true
}

// neverBound: the claim was bound to another volume while this one was made for it, and a claim
// cannot change its volume. So no pod ever had this one: it is undone, which removes nothing but an
// empty directory.
func neverBound(f VolumeFacts) (Verdict, bool) {
	return Verdict{Action: Undo, Reason: ReasonUnpublishedRemoved}, f.neverBound()
}

func (f VolumeFacts) neverBound() bool {
	return f.Elsewhere && !OnEveryNode(f.Volume) && (f.Record == nil || f.Record.Place == record.InPool || f.Record.Place == record.Nowhere)
}

// NotEmpty is said of a volume that was to be undone and has data.
func NotEmpty(v *corev1.PersistentVolume) Verdict {
	return Verdict{Action: Wait, Reason: ReasonClaimExists, After: retryAfter,
		Message: fmt.Sprintf("the volume is %s and has data, yet its claim exists and has another volume; nothing is removed", v.Status.Phase)}
}

func volumePoolMissing(f VolumeFacts) (Verdict, bool) {
	return Verdict{Action: Wait, Reason: ReasonUnknownPool, After: retryAfter,
		Message: fmt.Sprintf("node %s has no pool %q any more; nothing is removed", f.Node, f.Volume.Labels[PoolLabel])}, f.Pool == nil
}

func volumePoolClosed(f VolumeFacts) (Verdict, bool) {
	if f.Closed == "" {
		return Verdict{}, false
	}
	return Verdict{Action: Wait, Reason: ReasonPoolClosed, After: retryAfter,
		Message: fmt.Sprintf("pool %s: %s; nothing is removed until that is fixed", f.Pool.Name, f.Closed)}, true
}

func recordUnreadable(f VolumeFacts) (Verdict, bool) {
	return Verdict{Action: Wait, Reason: ReasonRecordDamaged, After: retryAfter, Message: f.Unreadable + "; nothing is removed"}, f.Unreadable != ""
}

// notRecorded: a directory without a record is not ours, whatever the object says. Where there is
// no directory either, on the right disk, nothing is left to protect.
func notRecorded(f VolumeFacts) (Verdict, bool) {
	switch {
	case f.Record != nil || f.Pool == nil:
		return Verdict{}, false
	case f.Foreign:
		return Verdict{Action: Refuse, Reason: ReasonNotRecorded, After: retryAfter, // nothing tells that it was moved away
			Message: fmt.Sprintf("%s is not recorded as a volume of pool %s; nothing is removed", PathOf(f.Volume), f.Pool.Name)}, true
	case !derivable(f):
		return pathMismatchVerdict(f, "a path of this pool"), true
	default:
		return Verdict{Action: LetGo, Reason: ReasonDeleted}, true
	}
}

// pathMismatch compares the path in the object, and never uses it: each user who can edit the
// object could write /etc there.
func pathMismatch(f VolumeFacts) (Verdict, bool) {
	if f.Record == nil || f.Pool == nil {
		return Verdict{}, false
	}
	return pathMismatchVerdict(f, f.Pool.Path+"/"+f.Record.Directory), !f.points()
}

// points reports whether the object points to where its directory is, or would be.
func (f VolumeFacts) points() bool {
	if f.Record == nil {
		return derivable(f)
	}
	return PathOf(f.Volume) == f.Pool.Path+"/"+f.Record.Directory && f.Record.PV == f.Volume.Name
}

func pathMismatchVerdict(f VolumeFacts, want string) Verdict {
	return Verdict{Action: Refuse, Reason: ReasonPathMismatch,
		Message: fmt.Sprintf("the volume points to %q, and this node's record says %s; nothing is removed", PathOf(f.Volume), want)}
}

func derivable(f VolumeFacts) bool {
	dir, err := DirectoryOf(*f.Pool, f.Volume)
	return err == nil && PathOf(f.Volume) == f.Pool.Path+"/"+dir
}

// DirectoryOf is the name that a volume's directory would be given in this pool, by its object
// alone.
func DirectoryOf(pool Pool, v *corev1.PersistentVolume) (string, error) {
	ref := v.Spec.ClaimRef
	if ref == nil {
		return "", errors.New("the volume has no claim")
	}
	pool = named(v.Annotations[ProvisionedBy], pool)
	if pool.Directory == nil {
		return "", errors.New("the volume is in no pool")
	}
	return pool.Directory(v.Name, ref.Namespace, ref.Name)
}

func goneAlready(f VolumeFacts) (Verdict, bool) {
	return Verdict{Action: LetGo, Reason: ReasonDeleted}, f.Record != nil && f.Record.Place == record.Nowhere
}

func archived(f VolumeFacts) (Verdict, bool) {
	return Verdict{Action: Archive, Reason: ReasonArchived},
		f.Record != nil && (f.Record.OnDelete == OnDeleteArchive || f.Record.Place == record.InArchive)
}

// SourceOf is the source that a volume object has, as spelt in the configuration.
func SourceOf(v *corev1.PersistentVolume) string {
	switch {
	case v.Spec.Local != nil:
		return SourceLocal
	case v.Spec.CSI != nil:
		return SourceCSI
	default:
		return SourceHostPath
	}
}

// PathOf is the path that a volume object says, "" for a source that has none on the host.
func PathOf(v *corev1.PersistentVolume) string {
	switch {
	case v.Spec.HostPath != nil:
		return v.Spec.HostPath.Path
	case v.Spec.Local != nil:
		return v.Spec.Local.Path
	case v.Spec.CSI != nil:
		return csiPath(v)
	default:
		return ""
	}
}
