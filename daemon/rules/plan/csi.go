package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// Attributes of a volume with source csi. The service that publishes volumes compares them with the
// volume's record, and uses neither as a path: each user who can edit the object could write /etc
// there.
const (
	AttributePool = "pool" // the pool's name
	AttributePath = "path" // of the volume's directory, as a hostPath volume would have it
)

// DriverNamePossible reports whether a CSIDriver can have this name: storage.k8s.io validates it as
// a driver's name (pkg/apis/core/validation, ValidateCSIDriverName), and as an object's.
func DriverNamePossible(name string) bool {
	return len(name) <= 63 && len(validation.IsDNS1123Subdomain(name)) == 0
}

// csiSource is the source of a volume that kubelet has published by the daemon's own CSI driver.
func (f ClaimFacts) csiSource(pv, path string) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: f.Provisioner, VolumeHandle: pv,
		VolumeAttributes: map[string]string{AttributePool: f.Pool.Name, AttributePath: path},
	}}
}

// csiPath is the path that a CSI volume of ours says, "" for one whose handle is not its own name:
// the record of another volume would be found by it.
func csiPath(v *corev1.PersistentVolume) string {
	switch {
	case v.Spec.CSI.VolumeHandle != v.Name:
		return ""
	case v.Spec.CSI.Driver == KubevirtCSI:
		return v.Annotations[PathAnnotation]
	}
	return v.Spec.CSI.VolumeAttributes[AttributePath]
}

// refuseCSI is why a class's volumes cannot have the source csi, nil if they can.
func (s Self) refuseCSI(class *storagev1.StorageClass, pool Pool) *Refusal {
	switch {
	case pool.Source != SourceCSI:
		return nil
	case pool.Scope == ScopeEveryNode:
		return refuse(ReasonBadParameter, "class %s: %s: pool %s has scope %s, whose volumes cannot have the source %s", class.Name, paramSource, pool.Name, pool.Scope, SourceCSI)
	case !DriverNamePossible(s.Provisioner):
		return refuse(ReasonBadParameter, "class %s: %s: %q cannot be a CSI driver's name", class.Name, paramSource, s.Provisioner)
	case len(class.MountOptions) > 0:
		return refuse(ReasonBadParameter, "class %s: mountOptions: a volume with source %s takes none; mount the pool's filesystem with them", class.Name, SourceCSI)
	}
	return nil
}

// LacksDriver is why pods would not start on volumes of a CSI driver, "" if they would. driver is
// nil if the cluster has no CSIDriver of the name: kube-controller-manager and kubelet then have
// the volumes attached first, for which there is no controller, and pods wait for ever
// (pkg/volume/csi, CanAttach).
func LacksDriver(name string, driver *storagev1.CSIDriver) string {
	const apply = "hostpath-provisioner manifests | kubectl apply -f -"
	switch {
	case driver == nil:
		return fmt.Sprintf("the cluster has no CSIDriver %s; an administrator runs: %s", name, apply)
	case driver.Spec.AttachRequired == nil || *driver.Spec.AttachRequired:
		return fmt.Sprintf("CSIDriver %s has attachRequired: true, which cannot be changed, and pods would wait for ever; an administrator deletes it, and runs: %s", name, apply)
	}
	return ""
}

// driverAfter is soon, because an administrator has just read the message.
const driverAfter = 5 * time.Second

// driverLacking: a volume with source csi is made when the cluster can use it.
func driverLacking(f RequestFacts) (Refusal, bool) {
	return Refusal{Help: ByItself, Reason: ReasonDriver, Message: "source " + SourceCSI + ": " + f.Driver, After: driverAfter}, f.Driver != ""
}

// An inline volume is written in a pod (volumes: csi: in its spec) and has no object. kubelet asks
// the node service for it when the pod starts, that asks the daemon, and the directory goes when
// the pod is gone. Each user who may create pods can have them, so that all of a pool together are
// bounded, in bytes and in number.

// InlineSize is the attribute of an inline volume that says how large it is. That of its pool is
// KubevirtPool.
const InlineSize = "size"

const (
	inlineDefault = 1 << 30 // bytes of one that says no size, as those of kubevirt's driver, which knows none
	inlineLeast   = 1 << 20 // bytes of the smallest
	inlineMost    = 1000    // of one pool
)

// InlineHandle reports whether a handle has the form of those that kubelet gives to inline volumes:
// a SHA-256 of the pod's UID and the volume's name (pkg/volume/csi, makeVolumeHandle).
func InlineHandle(handle string) bool {
	digits, is := strings.CutPrefix(handle, "csi-")
	return is && len(digits) == 64 && strings.Trim(digits, "0123456789abcdef") == ""
}

// InlinePool is the pool that an inline volume asks for, of those that make them. attributes are
// the volume's, among which kubelet's own begin with "csi.storage.k8s.io/".
func InlinePool(driver string, attributes map[string]string, pools []string) (string, error) {
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		if key != KubevirtPool && key != InlineSize && !strings.HasPrefix(key, "csi.storage.k8s.io/") {
			return "", fmt.Errorf("unknown attribute %s; %s and %s are known", words.Quoted(key), KubevirtPool, InlineSize)
		}
	}
	name, named := attributes[KubevirtPool]
	switch {
	case len(pools) == 0:
		return "", errors.New("no pool of this node has them (inline_volumes); use a generic ephemeral volume (ephemeral: in place of csi: in the pod)")
	case named && !slices.Contains(pools, name):
		return "", fmt.Errorf("this node has no pool %s with inline_volumes", words.Quoted(name))
	case named:
		return name, nil
	case driver == KubevirtCSI && slices.Contains(pools, "legacy"): // that driver's default
		return "legacy", nil
	case len(pools) > 1:
		return "", fmt.Errorf("its attribute %s has to name one of the pools %s", KubevirtPool, strings.Join(pools, ", "))
	}
	return pools[0], nil
}

// InlineFacts is everything that a decision about an inline volume to be made depends on.
type InlineFacts struct {
	Handle string
	Size   string // as its attribute says, "" if it has none
	UID    string // of its pod
	Pool   Pool
	Closed string // why Pool takes no new work, "" if it does
	Room   capacity.Room
	// Records are those of the pool.
	Records []record.Record
	bytes   int64 // Size
}

type inlineRule func(f InlineFacts) (refused string, applies bool)

// inlineRules: the first that applies refuses. What there is already costs nothing more, and is
// made again after the pod's node was down.
var inlineRules = []inlineRule{inlineMalformed, inlineOff, inlineClosed, inlineSmall, inlineThere, inlineMany, inlineBudget, inlineTooLarge}

// ForInline returns the size of an inline volume that is to be made, in bytes, and why it is not,
// "" if it is.
func ForInline(f InlineFacts) (size int64, refused string) {
	if f.bytes, refused = inlineBytes(f.Size); refused != "" {
		return f.bytes, refused
	}
	return f.bytes, Decide(inlineRules, f, "")
}

// parseable reports whether a size, which any user wrote, is short: ParseQuantity computes
// 1e-30000000 for 15 seconds, and 1e-2000000000 for longer than anybody waits. The API server has
// parsed a claim's size before.
func parseable(text string) bool {
	const digits = "0123456789"
	suffix := strings.TrimLeft(text, digits+".")
	if number := len(text) - len(suffix); number == 0 || number > 20 {
		return false
	}
	if !strings.ContainsAny(suffix, digits) {
		return len(suffix) <= 2
	}
	exponent := strings.TrimLeft(suffix[1:], digits)
	return strings.ContainsAny(suffix[:1], "eE") && exponent == "" && len(suffix) <= 3
}

func inlineBytes(text string) (size int64, refused string) {
	if text == "" {
		return inlineDefault, ""
	}
	malformed := fmt.Sprintf("%s %s is no size, such as 1Gi", InlineSize, words.Quoted(text))
	if !parseable(text) {
		return 0, malformed
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, malformed
	}
	size, exact := Bytes(q)
	if !exact {
		return 0, fmt.Sprintf("%s %s is no size that a volume can have", InlineSize, words.Quoted(text))
	}
	return size, ""
}

func inlineMalformed(f InlineFacts) (string, bool) {
	return fmt.Sprintf("handle %s is none that kubelet gives to a volume of pod %s",
			words.Quoted(f.Handle), words.Quoted(f.UID)),
		!InlineHandle(f.Handle) || record.CheckDirectory(f.UID) != nil
}

func inlineOff(f InlineFacts) (string, bool) {
	return fmt.Sprintf("pool %s has no inline volumes (inline_volumes)", f.Pool.Name),
		f.Pool.Inline == 0 || f.Pool.Source != SourceCSI || f.Pool.Scope != ScopeNode
}

func inlineClosed(f InlineFacts) (string, bool) {
	return fmt.Sprintf("pool %s: %s", f.Pool.Name, f.Closed), f.Closed != ""
}

func inlineSmall(f InlineFacts) (string, bool) {
	return fmt.Sprintf("its %s is %s, and the least is %s", InlineSize,
		words.Size(uint64(f.bytes)), words.Size(inlineLeast)), f.bytes < inlineLeast
}

// inlineThere refuses nothing: it is made already.
func inlineThere(f InlineFacts) (string, bool) {
	return "", slices.ContainsFunc(f.Records, func(r record.Record) bool {
		return r.Kind == record.Inline && r.PV == f.Handle && r.ClaimUID == f.UID && r.Place != record.Emptying
	})
}

func inlineMany(f InlineFacts) (string, bool) {
	n, _ := inlineTaken(f.Records)
	return fmt.Sprintf("pool %s has %d inline volumes, which is the most", f.Pool.Name, n),
		n >= inlineMost
}

func inlineBudget(f InlineFacts) (string, bool) {
	_, taken := inlineTaken(f.Records)
	return fmt.Sprintf("pool %s: it would be promised %s, and of %s for all inline volumes "+
			"(inline_volumes) %s are promised",
			f.Pool.Name, words.Size(uint64(f.bytes)), words.Size(f.Pool.Inline), words.Size(taken)),
		taken > f.Pool.Inline || uint64(f.bytes) > f.Pool.Inline-taken
}

func inlineTooLarge(f InlineFacts) (string, bool) {
	return fmt.Sprintf("pool %s: it would be promised %s, and %s is available", f.Pool.Name,
		words.Size(uint64(f.bytes)), words.Size(f.Room.Free)), uint64(f.bytes) > f.Room.Free
}

// inlineTaken is how many inline volumes there are, and what they are promised together. What is
// being emptied counts.
func inlineTaken(records []record.Record) (n int, taken uint64) {
	for _, r := range records {
		if r.Kind == record.Inline && r.Place != record.Nowhere {
			n++
			taken += r.Reserved()
		}
	}
	return n, taken
}

// InlineRecordFacts is everything that a decision about the record of an inline volume depends on.
// The API has no part in it.
type InlineRecordFacts struct {
	Self
	Record record.Record
	Former []string // names that this node had before
	// Mounted: the directory is mounted on this host, or whether it is could not be found out.
	Mounted bool
	// Pod: kubelet has a directory of the volume's pod, or whether it has could not be found out.
	// It is false, too, where the node service has unpublished the volume.
	Pod bool
}

// ForInlineRecord decides about an inline volume that the disk remembers: it goes when neither a
// mount nor kubelet has it any more. Both are looked at, because there is no mount of it while its
// pod starts, nor after the node was down, and because another directory than kubelet's may be
// configured as kubelet's.
func ForInlineRecord(f InlineRecordFacts) Verdict {
	switch {
	case f.Record.Kind != record.Inline, f.Record.Retained, !NodeNamed(f.Record.Node, f.Node, f.Former):
		return Verdict{Action: Keep}
	case f.Record.Place == record.Emptying:
		return Verdict{Action: Finish}
	case f.Mounted, f.Pod:
		return Verdict{Action: Keep}
	case f.Record.Place == record.Nowhere:
		return Verdict{Action: Undo, Reason: ReasonUnpublishedRemoved}
	case f.Record.Place == record.InPool, f.Record.Place == record.InTrash:
		return Verdict{Action: Delete, Reason: ReasonDeleted}
	}
	return Verdict{Action: Keep}
}
