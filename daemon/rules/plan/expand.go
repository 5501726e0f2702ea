package plan

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// A bound claim that requests more than it has is expanded by the daemon that has its volume.
// kube-controller-manager leaves hostPath and local volumes to an external controller
// (pkg/controller/volume/expand, ExternalExpanding).

// Actions for a claim that requests more than it has, beside Ignore and Wait.
const (
	Expand     Action = "expand"     // make the volume as large as Target, or finish what was begun
	Infeasible Action = "infeasible" // write in the claim's status that its request cannot be met
)

// ExpandFacts is everything that a decision about such a claim depends on.
type ExpandFacts struct {
	Self
	Claim      *corev1.PersistentVolumeClaim
	Volume     *corev1.PersistentVolume // the claim's, nil if no daemon of this node looks after it
	Pool       *Pool                    // the pool that the volume's label names, nil if this node has none of that name
	Closed     string                   // why nothing can be done in the pool, "" if it can
	Record     *record.Record           // nil: the disk has no record of it
	Unreadable string                   // why the record cannot be read, "" if it can or there is none
	Silent     bool                     // the pool is shared, and this daemon does not work in it
	Room       capacity.Room            // for the difference
	Nodes      int                      // that the cluster has
	Age        time.Duration            // since this daemon first saw that the claim requests more
}

type expandRule func(ExpandFacts) (Verdict, bool)

// expandRules is the specification: the first rule that applies decides. What is not this node's
// comes first, then what the disk refuses, then the size.
var expandRules = []expandRule{
	notGrowing, notThisVolume, expandNotLeading, partCannotExpand, partNotItsTurn, expandPoolMissing, expandPoolClosed,
	expandUnreadable, expandNotRecorded, expandPathMismatch, expandNotInPool, growthDoesNotFit,
}

// ForExpansion decides what this node does about a bound claim that requests more than it has. It
// never asks for less than the claim has, nor for less than its volume object says.
func ForExpansion(f ExpandFacts) Verdict {
	return Decide(expandRules, f, Verdict{Action: Expand, Reason: ReasonExpanded})
}

// Growing reports whether a claim is bound and requests more than it has. The phase and the
// capacity are written together (pkg/controller/volume/persistentvolume, updateClaimStatus), after
// the volume's name.
func Growing(c *corev1.PersistentVolumeClaim) bool {
	if c.Spec.VolumeName == "" || c.DeletionTimestamp != nil || c.Status.Phase != corev1.ClaimBound {
		return false
	}
	has, known := c.Status.Capacity[corev1.ResourceStorage]
	return known && Exceeds(requested(c), has)
}

// KeepGrowing reports whether a claim that asks for something was given to this node.
func (s Self) KeepGrowing(c *corev1.PersistentVolumeClaim) bool {
	return Asks(c) && s.Serves(askedProvisioner(c)) && Chosen(c) == s.Node
}

// KeepGrowingOfAll reports whether a claim that asks for something may be of this node's, though it
// does not name it: it was bound at once, or by hand. ofAll says that its class leads to a pool that is
// OfAllNodes, whichever node was chosen.
func (s Self) KeepGrowingOfAll(c *corev1.PersistentVolumeClaim, ofAll bool) bool {
	asked := askedProvisioner(c)
	return Asks(c) && (asked == "" || s.Serves(asked)) && (ofAll || Chosen(c) == "")
}

// Exceeds compares sizes in whole bytes: Quantity.Cmp writes out all digits of 1e999999999 (Bytes).
func Exceeds(a, b resource.Quantity) bool {
	one, _ := Bytes(a)
	other, _ := Bytes(b)
	return one > other
}

// Target is the size that the volume is to have: what is requested, or what the volume object says
// already. That is more only if the request was lowered after the object was written; a volume
// object never becomes smaller.
func (f ExpandFacts) Target() resource.Quantity {
	want := requested(f.Claim)
	if f.Volume != nil {
		if has := f.Volume.Spec.Capacity[corev1.ResourceStorage]; Exceeds(has, want) {
			return has
		}
	}
	return want
}

func notGrowing(f ExpandFacts) (Verdict, bool) { return Verdict{Action: Ignore}, !Growing(f.Claim) }

// notThisVolume: the volume is another node's, another provisioner's, or another claim's.
func notThisVolume(f ExpandFacts) (Verdict, bool) {
	v := f.Volume
	if v == nil || v.Name != f.Claim.Spec.VolumeName || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != f.Claim.UID {
		return Verdict{Action: Ignore}, true
	}
	scope := ""
	if f.Pool != nil {
		scope = f.Pool.Scope
	}
	ours := home(v, scope, f.Node) || f.Record != nil && inherited(v, scope)
	return Verdict{Action: Ignore}, !ours || !f.Serves(v.Annotations[ProvisionedBy])
}

func expandNotLeading(f ExpandFacts) (Verdict, bool) { return Verdict{Action: Ignore}, f.Silent }

// partCannotExpand: of scope every-node another node raises the size, which this one follows once
// it has the directory (ForPart).
func partCannotExpand(f ExpandFacts) (Verdict, bool) {
	able := f.Pool != nil && f.Closed == "" && f.Unreadable == "" && f.Record != nil && f.Record.Place == record.InPool && f.points()
	return Verdict{Action: Wait, After: retryAfter}, f.everyNode() && !able
}

// partNotItsTurn: any node may raise the size in the API, and one should.
func partNotItsTurn(f ExpandFacts) (Verdict, bool) {
	wait := StaggerDelay(string(f.Claim.UID), f.Node, f.Nodes, publishSpan) - f.Age
	return Verdict{Action: Wait, After: wait}, f.everyNode() && wait > 0
}

func (f ExpandFacts) everyNode() bool { return f.Volume != nil && OnEveryNode(f.Volume) }

func expandPoolMissing(f ExpandFacts) (Verdict, bool) {
	if f.Pool != nil || f.Volume == nil {
		return Verdict{}, false
	}
	return f.waits(ReasonUnknownPool, fmt.Sprintf("this node has no pool %q any more", f.Volume.Labels[PoolLabel])), true
}

func expandPoolClosed(f ExpandFacts) (Verdict, bool) {
	if f.Closed == "" || f.Pool == nil {
		return Verdict{}, false
	}
	return f.waits(ReasonPoolClosed, "pool "+f.Pool.Name+": "+f.Closed), true
}

func expandUnreadable(f ExpandFacts) (Verdict, bool) {
	return f.waits(ReasonRecordDamaged, f.Unreadable), f.Unreadable != ""
}

// expandNotRecorded: a directory without a record is not ours.
func expandNotRecorded(f ExpandFacts) (Verdict, bool) {
	if f.Record != nil || f.Pool == nil || f.Volume == nil {
		return Verdict{}, false
	}
	return f.infeasible(ReasonNotRecorded, fmt.Sprintf("%s is not recorded as a volume of pool %s", PathOf(f.Volume), f.Pool.Name)), true
}

func expandPathMismatch(f ExpandFacts) (Verdict, bool) {
	if f.Record == nil || f.Pool == nil || f.points() {
		return Verdict{}, false
	}
	return f.infeasible(ReasonPathMismatch, fmt.Sprintf("the volume points to %q, and this node's record says %s",
		PathOf(f.Volume), f.Pool.Path+"/"+f.Record.Directory)), true
}

func (f ExpandFacts) points() bool {
	return f.Volume != nil && VolumeFacts{Volume: f.Volume, Pool: f.Pool, Record: f.Record}.points()
}

// expandNotInPool: the directory is elsewhere because its removal was begun. What becomes of it the
// volume's rules say.
func expandNotInPool(f ExpandFacts) (Verdict, bool) {
	return Verdict{Action: Wait, After: retryAfter}, f.Record != nil && f.Record.Place != record.InPool
}

// growthDoesNotFit: of scope every-node another node may have the room; if none has, each says so
// of itself.
func growthDoesNotFit(f ExpandFacts) (Verdict, bool) {
	if f.Record == nil || f.Pool == nil {
		return Verdict{}, false
	}
	target := f.Target()
	want, exact := Bytes(target)
	kept := f.Record.Reserved()
	if exact && (uint64(want) <= kept || uint64(want)-kept <= f.Room.Free) {
		return Verdict{}, false
	}
	if f.everyNode() && f.Age < takeOverAfter {
		return Verdict{Action: Wait, After: takeOverAfter - f.Age}, true
	}
	missing := spaceMissing(*f.Pool, target, f.Room) + ", including " + words.Size(kept) + " to this one"
	return f.infeasible(ReasonNotEnoughSpace, missing), true
}

func (f ExpandFacts) waits(reason, message string) Verdict {
	return Verdict{Action: Wait, Reason: reason, After: retryAfter, Message: f.prefixed(message)}
}

func (f ExpandFacts) infeasible(reason, message string) Verdict {
	return Verdict{Action: Infeasible, Reason: reason, After: retryAfter, Message: f.prefixed(message)}
}

func (f ExpandFacts) prefixed(message string) string {
	return "node " + f.Node + ": the volume is not expanded: " + message
}

// Smaller reports whether a record says less than its volume object. Of scope every-node each node
// looks by itself (ForPart).
func Smaller(p Pool, rec record.Record, v *corev1.PersistentVolume) bool {
	f := VolumeFacts{Volume: v, Pool: &p, Record: &rec}
	has, exact := Bytes(SizeOf(v))
	return exact && !OnEveryNode(v) && rec.Place == record.InPool && f.points() &&
		rec.Reserved() > 0 && uint64(has) > rec.Reserved()
}

// TooSmall is what is said of a record that stays smaller than its volume object, because the pool
// has not the room.
func TooSmall(
	node string, p Pool, rec record.Record, v *corev1.PersistentVolume, room capacity.Room,
) string {
	has := SizeOf(v)
	return fmt.Sprintf("node %s: the volume object says %s, and %s is kept for it: pool %s: %s",
		node, words.Name(has.String()), words.Size(rec.Reserved()), p.Name, roomLeft(room))
}

// Larger is the size that a record is to have again which says more than its volume object, whose
// capacity was too large for a while. ok is false where that is no mistake: an expansion writes the
// record first, for as long as the claim requests more.
func Larger(
	p Pool, rec record.Record, v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim,
) (bytes int64, ok bool) {
	f := VolumeFacts{Volume: v, Pool: &p, Record: &rec}
	has, exact := Bytes(SizeOf(v))
	sized := exact && has > 0 && rec.Promised == 0 && rec.Requested > has
	if !sized || rec.Place != record.InPool || !f.points() {
		return 0, false
	}
	if claim != nil && v.Spec.ClaimRef != nil && claim.UID == v.Spec.ClaimRef.UID {
		wants, known := Bytes(requested(claim))
		if !known || Growing(claim) {
			return 0, false
		}
		has = max(has, wants)
	}
	return has, rec.Requested > has
}

// What an expansion writes in a claim's status, as other controllers and kubectl read it (KEP-1790;
// external-resizer, pkg/controller/resize_status.go; kubernetes, pkg/volume/util/resize_util.go).

// StorageResizer is the annotation that names the controller that expands a claim
// (pkg/volume/util/types, VolumeResizerKey).
const StorageResizer = "volume.kubernetes.io/storage-resizer"

// ClaimStatus is a change of a claim's status. What it does not name stays.
type ClaimStatus struct {
	Capacity  *resource.Quantity         // nil leaves it
	Allocated *resource.Quantity         // nil leaves it
	State     corev1.ClaimResourceStatus // of the expansion, "" for none
	Set       []corev1.PersistentVolumeClaimCondition
	Remove    []corev1.PersistentVolumeClaimConditionType
	Resizer   string // the value of StorageResizer, "" leaves it
}

// BegunStatus says that the claim is being expanded to this size. kubelet leaves a claim in this
// state alone (pkg/volume/util/operationexecutor, runPreCheck).
func BegunStatus(f ExpandFacts, now time.Time) ClaimStatus {
	target := f.Target()
	return ClaimStatus{
		Allocated: &target, State: corev1.PersistentVolumeClaimControllerResizeInProgress, Resizer: f.Volume.Annotations[ProvisionedBy],
		Set: []corev1.PersistentVolumeClaimCondition{resizing(corev1.PersistentVolumeClaimResizing, "", now)},
		Remove: []corev1.PersistentVolumeClaimConditionType{
			corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError, corev1.PersistentVolumeClaimFileSystemResizePending,
		},
	}
}

// InfeasibleStatus says why the claim cannot have this size. In this state its user may lower the
// request again, to more than the capacity (RecoverVolumeExpansionFailure). It has what the claim
// requests, which quotas count, and not what a hand wrote on the volume object. A size that is no
// number of bytes is not repeated.
func InfeasibleStatus(f ExpandFacts, message string, now time.Time) ClaimStatus {
	s := ClaimStatus{
		State: corev1.PersistentVolumeClaimControllerResizeInfeasible, Resizer: f.Volume.Annotations[ProvisionedBy],
		Set: []corev1.PersistentVolumeClaimCondition{
			resizing(corev1.PersistentVolumeClaimResizing, "", now), resizing(corev1.PersistentVolumeClaimControllerResizeError, message, now),
		},
	}
	if want := requested(f.Claim); exactly(want) {
		s.Allocated = &want
	}
	return s
}

// DoneStatus says that the claim has this size. Its allocatedResources stay: with them kubelet sees
// that an expansion of a local volume has nothing to do, and without them it takes the controller
// for one of an earlier version and expands once more (pkg/volume/util/operationexecutor,
// checkForRecoveryFromExpansion).
func DoneStatus(size resource.Quantity) ClaimStatus {
	return ClaimStatus{Capacity: &size, Allocated: &size, Remove: []corev1.PersistentVolumeClaimConditionType{
		corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimControllerResizeError,
		corev1.PersistentVolumeClaimNodeResizeError, corev1.PersistentVolumeClaimFileSystemResizePending,
	}}
}

// Noted reports whether the claim's status has an expansion to Target in this state already.
func (f ExpandFacts) Noted(state corev1.ClaimResourceStatus) bool {
	status, target := f.Claim.Status, f.Target()
	if state == corev1.PersistentVolumeClaimControllerResizeInfeasible {
		target = requested(f.Claim)
	}
	if status.AllocatedResourceStatuses[corev1.ResourceStorage] != state {
		return false
	}
	if !exactly(target) {
		return true
	}
	allocated, known := status.AllocatedResources[corev1.ResourceStorage]
	return known && !Exceeds(allocated, target) && !Exceeds(target, allocated)
}

// Stateless reports whether the claim's status has nothing of an expansion but conditions. An API
// server before Kubernetes 1.32 drops all else without an error
// (pkg/api/persistentvolumeclaim, DropDisabledFieldsFromStatus).
func (f ExpandFacts) Stateless() bool {
	return len(f.Claim.Status.AllocatedResourceStatuses)+len(f.Claim.Status.AllocatedResources) == 0
}

func exactly(q resource.Quantity) bool {
	_, exact := Bytes(q)
	return exact
}

func resizing(kind corev1.PersistentVolumeClaimConditionType, message string, now time.Time) corev1.PersistentVolumeClaimCondition {
	return corev1.PersistentVolumeClaimCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now), Message: message}
}

// Restyled reports whether a claim is bound and names a VolumeAttributesClass that its volume does
// not have: a CSI driver's external-resizer would change the volume, and write the class into the
// status (KEP-3751).
func Restyled(c *corev1.PersistentVolumeClaim) bool {
	wants, has := attributesClass(c), c.Status.CurrentVolumeAttributesClassName
	bound := c.Spec.VolumeName != "" && c.DeletionTimestamp == nil &&
		c.Status.Phase == corev1.ClaimBound
	return bound && wants != "" && (has == nil || *has != wants)
}

func attributesClass(c *corev1.PersistentVolumeClaim) string {
	if name := c.Spec.VolumeAttributesClassName; name != nil {
		return *name
	}
	return ""
}

// Asks reports whether a bound claim asks for something that it does not have: more room, or other
// attributes.
func Asks(c *corev1.PersistentVolumeClaim) bool { return Growing(c) || Restyled(c) }

// restyleRules are the specification, as expandRules.
var restyleRules = []expandRule{notRestyled, notThisVolume, expandNotLeading, restyledElsewhere}

// ForRestyled decides about a bound claim that names a VolumeAttributesClass: it is told that its
// volume stays as it is.
func ForRestyled(f ExpandFacts) Verdict {
	return Decide(restyleRules, f, Verdict{Action: Refuse, Reason: ReasonAttributesClass,
		Message: "volumeAttributesClassName " + words.Quoted(attributesClass(f.Claim)) +
			": the volume stays as it is: " + noAttributes})
}

const noAttributes = "volumes of this provisioner have no attributes that a " +
	"VolumeAttributesClass changes"

func notRestyled(f ExpandFacts) (Verdict, bool) {
	return Verdict{Action: Ignore}, !Restyled(f.Claim)
}

// restyledElsewhere: of scope every-node each node has the volume, and the one that was chosen for
// the claim tells it.
func restyledElsewhere(f ExpandFacts) (Verdict, bool) {
	chosen := Chosen(f.Claim)
	return Verdict{Action: Ignore}, f.everyNode() && chosen != "" && chosen != f.Node
}
