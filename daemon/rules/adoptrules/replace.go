package adoptrules

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// A volume object keeps its source for life (pkg/apis/core/validation: spec.persistentvolumesource
// is immutable), so the data of a CSI driver is taken over by a new object in the place of the
// driver's: of the same name and for the same claim, by UID. kube-controller-manager calls the
// claim Lost while neither object is there, and Bound again when one is
// (pkg/controller/volume/persistentvolume, syncBoundClaim).

// AdoptedFromCSI is the value of AdoptedAnnotation on an object that was made in the place of a
// CSI driver's.
const AdoptedFromCSI = "from-csi"

// replacementRules is the specification of what becomes of a CSI driver's volume, which f.Volume
// shows as OfHost has it. No flag overrides that the driver runs or that the volume is in use.
// TestReplacementInOrder has what each tells the operator, in this order.
var replacementRules = []rule{
	inlineVolume,
	notInPool,
	onAnotherNode,
	makerUnknown,
	notAnAlias,
	blockVolume,
	readOnly,
	beingDeletedByOthers,
	neverBound,
	pathNotCanonical,
	adoptedElsewhere,
	beingAdoptedElsewhere,
	alreadyRecorded,
	hasOthersFinalizer,
	directoryShared,
	directoryUnusable,
	mountedElsewhere,
	noAffinity,
	driverRuns,
	inUse,
	aboutToBeRemoved,
}

// ForReplacement decides whether this node replaces the object of a CSI driver's volume.
func ForReplacement(f Facts) Verdict {
	return plan.Decide(replacementRules, f, Verdict{Action: Adopt, Notes: sizeNotes(f)})
}

// OfDriver reports whether a volume object has the source of this CSI driver.
func OfDriver(v *corev1.PersistentVolume, driver string) bool {
	return v.Spec.CSI != nil && driver != "" && v.Spec.CSI.Driver == driver
}

// OfHost is a CSI driver's volume as the rules see it: its data is the directory of the pool that
// its handle names, and its reclaim policy the one that it had before it was held.
func OfHost(v *corev1.PersistentVolume, pool plan.Pool) *corev1.PersistentVolume {
	seen := v.DeepCopy()
	directory := corev1.HostPathDirectory
	seen.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: pool.Path + "/" + v.Spec.CSI.VolumeHandle, Type: &directory},
	}
	seen.Spec.PersistentVolumeReclaimPolicy = OwnPolicy(v)
	if seen.Annotations[plan.ProvisionedBy] == "" { // an object that was made by hand names its driver as well
		if seen.Annotations == nil {
			seen.Annotations = map[string]string{}
		}
		seen.Annotations[plan.ProvisionedBy] = v.Spec.CSI.Driver
	}
	return seen
}

// OwnPolicy is a volume's reclaim policy, also while it is held.
func OwnPolicy(v *corev1.PersistentVolume) corev1.PersistentVolumeReclaimPolicy {
	held := corev1.PersistentVolumeReclaimPolicy(v.Annotations[plan.HeldAnnotation])
	if held == corev1.PersistentVolumeReclaimDelete {
		return held
	}
	return v.Spec.PersistentVolumeReclaimPolicy
}

// Held reports whether a call of this node was about to replace the object.
func Held(v *corev1.PersistentVolume, pool plan.Pool, node string) bool {
	return v.Annotations[plan.HeldAnnotation] != "" && v.Annotations[AdoptingAnnotation] == adopting(pool, node)
}

// HoldPatch is for an object that is about to be replaced. A provisioner that takes it for its own
// has nothing to remove meanwhile.
func HoldPatch(v *corev1.PersistentVolume, pool plan.Pool, node string) plan.MetadataPatch {
	m := AdoptingPatch(v, pool, node)
	policy := string(OwnPolicy(v))
	m.Annotations[plan.HeldAnnotation], m.Reclaim = &policy, corev1.PersistentVolumeReclaimRetain
	return m
}

// ReleasePatch undoes HoldPatch.
func ReleasePatch(v *corev1.PersistentVolume) plan.MetadataPatch {
	m := annotate(v, map[string]*string{AdoptingAnnotation: nil, plan.HeldAnnotation: nil})
	m.Reclaim = OwnPolicy(v)
	return m
}

// Original is an object as it was before it was held, with all that is needed to make it again.
func Original(v *corev1.PersistentVolume) *corev1.PersistentVolume {
	was := v.DeepCopy()
	was.ObjectMeta = metav1.ObjectMeta{
		Name: v.Name, Labels: v.Labels, Annotations: without(v.Annotations, AdoptingAnnotation, plan.HeldAnnotation),
		Finalizers: v.Finalizers, OwnerReferences: v.OwnerReferences,
	}
	was.Spec.PersistentVolumeReclaimPolicy = OwnPolicy(v)
	was.Status = corev1.PersistentVolumeStatus{}
	return was
}

func without(annotations map[string]string, keys ...string) map[string]string {
	left := map[string]string{}
	for key, value := range annotations {
		if !slices.Contains(keys, key) {
			left[key] = value
		}
	}
	return left
}

// Successor is the object that takes the place of a CSI driver's, given as OfHost has it. hostname
// is the value of this node's label, and size what the pool keeps for it (Size): its capacity,
// unless nothing is kept.
func Successor(seen *corev1.PersistentVolume, pool plan.Pool, node, hostname string,
	size resource.Quantity) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: seen.Name, Labels: without(seen.Labels), Annotations: without(seen.Annotations, AdoptingAnnotation, plan.HeldAnnotation),
			Finalizers: []string{plan.Finalizer},
		},
		Spec: *seen.Spec.DeepCopy(),
	}
	maps.Copy(v.Labels, plan.VolumeLabels(pool, node))
	v.Annotations[plan.AdoptedAnnotation] = AdoptedFromCSI
	v.Spec.PersistentVolumeSource = plan.VolumeSource(pool, plan.PathOf(seen))
	v.Spec.NodeAffinity = plan.NodeAffinity(hostname)
	if pool.Source != plan.SourceLocal { // see mountOptions
		v.Spec.MountOptions = nil
	}
	if size.Sign() > 0 {
		v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: size}
	} else if v.Spec.Capacity.Storage().Sign() > 0 {
		v.Annotations[plan.SizeAnnotation] = plan.SizeNote(v, size)
	}
	clean(v)
	return v
}

// Predecessor is the driver's object that takes the place of ours again: what may have changed
// since is as ours has it, and the capacity if it is more. Without ours (nil), it is as it was.
func Predecessor(original, ours *corev1.PersistentVolume) *corev1.PersistentVolume {
	v := original.DeepCopy()
	if ours != nil {
		v.Spec.ClaimRef = ours.Spec.ClaimRef.DeepCopy()
		if ours.Spec.Capacity.Storage().Cmp(*v.Spec.Capacity.Storage()) > 0 {
			v.Spec.Capacity = ours.Spec.Capacity.DeepCopy()
		}
		v.Spec.PersistentVolumeReclaimPolicy = OwnPolicy(ours)
	}
	clean(v)
	return v
}

// clean: the claim's resource version is another one by now, and is not compared.
func clean(v *corev1.PersistentVolume) {
	if v.Spec.ClaimRef != nil {
		v.Spec.ClaimRef.ResourceVersion = ""
	}
}

// Succeeds reports whether an object is the one that was made in the place of a CSI driver's on
// this node.
func Succeeds(v *corev1.PersistentVolume, pool plan.Pool, node string, r *record.Record) bool {
	return r.Replaced != "" && labelledFor(v, pool, node) && plan.PathOf(v) == pool.Path+"/"+r.Directory && v.Spec.ClaimRef != nil
}

// inlineVolume: a handle that begins with "csi" is one of an inline volume, which ends with its
// pod.
func inlineVolume(f Facts) (Verdict, bool) {
	handle := strings.TrimPrefix(plan.PathOf(f.Volume), f.Pool.Path+"/")
	return refuse(strings.HasPrefix(handle, "csi") && !f.Elsewhere(), "", "handle %q is one of an inline volume, which its pod takes along", handle)
}

// readOnly: no hostPath volume is read-only by its object.
func readOnly(f Facts) (Verdict, bool) {
	return refuse(f.ReadOnly, "", "it is read-only, which a volume of this pool would not be")
}

// beingDeletedByOthers: a deletion that a call of this node began is finished, no other.
func beingDeletedByOthers(f Facts) (Verdict, bool) {
	began := Held(f.Volume, f.Pool, f.Node) && f.Record != nil && f.Record.Replaced != ""
	return refuse(f.Volume.DeletionTimestamp != nil && !began, "", "it is being deleted")
}

func hasOthersFinalizer(f Facts) (Verdict, bool) {
	other := plan.OthersFinalizer(f.Volume)
	return refuse(other != "", "", "it has the finalizer %q: its owner has to take it off first", other)
}

// driverRuns: a driver mounts volumes by the object that kubelet read, and its provisioner removes
// the data of an object that is deleted. So no call goes on beside it, however far an earlier one
// came.
func driverRuns(f Facts) (Verdict, bool) {
	if f.Running != "" {
		return refuse(true, ReasonDriverRuns, "its driver runs: %s", f.Running)
	}
	return refuse(f.NotKnown != "", ReasonDriverNotKnown, "it is not known whether its driver runs: %s", f.NotKnown)
}

func inUse(f Facts) (Verdict, bool) {
	return refuse(f.Used != "", ReasonUsed, "pod %s uses it", f.Used)
}
