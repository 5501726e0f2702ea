package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// Request is what is asked of a new volume. Its rules know no claim, so that they also decide about
// a request that comes without one.
type Request struct {
	Volume           string // the name of the PersistentVolume
	Namespace, Claim string // of the claim, for the pattern of directory names
	Class            string // the StorageClass's name, for messages
	Size             resource.Quantity
	AccessModes      []corev1.PersistentVolumeAccessMode
	VolumeMode       corev1.PersistentVolumeMode   // "" is Filesystem
	Source           *corev1.TypedObjectReference  // what the volume is filled from, nil for an empty one
	Selector         bool                          // existing volumes are selected by label
	AttributesClass  string                        // the VolumeAttributesClass's name, "" for none
	Topologies       []corev1.TopologySelectorTerm // of which the node has to match one; without any, every node does
}

// RequestFacts is everything that a decision about a request depends on.
type RequestFacts struct {
	Self
	Request    Request
	NodeLabels map[string]string // nil: the cluster does not know this node
	Nodes      int               // that the cluster has
	Pool       Pool              // what Resolve returned
	Refusal    *Refusal          // what Resolve refused, nil if it returned a pool
	Closed     string            // why the pool takes no work, "" if it is open
	Driver     string            // why pods would not start on a volume with source csi, "" if they would or the source is another
	Held       bool              // it is closed because another daemon of this host uses it
	Cordoned   bool              // it takes no new volumes because a person said so
	Room       capacity.Room     // for one more volume
	From       *SourceFacts      // of a copy, nil where they do not matter (SourceMatters)
	Disks      []Disk            // what the class leads to, of which Pool is one
}

// Refusal is why there is no volume for a request, and what could help.
type Refusal struct {
	Reason, Message string
	Help            Help
	After           time.Duration // of ByItself: look again after this long; 0: only when something changes
}

// Help is what has to change before a refused request can have its volume.
type Help int

// Values of Help.
const (
	ByRequest Help = iota // the request or its class: no node can provide it
	ByNode                // another node may have what this one lacks
	ByItself              // nothing: this node can provide it later
)

type requestRule func(RequestFacts) (Refusal, bool)

// requestRules is the specification: the first rule that applies decides. What no node could
// provide comes first, then what this node cannot.
var requestRules = []requestRule{
	classRefused, populatorFills, blockRequested, accessModeUnsupported, restoresOff, selectorSet, attributesClassSet, cloneRefused, restoreRefused, driverLacking,
	topologyMismatch, nodeUnknown, nameInvalid, poolInUse, poolClosed, tooLarge,
}

// ForRequest decides whether this node refuses a request.
func ForRequest(f RequestFacts) (Refusal, bool) {
	return First(requestRules, f)
}

// requestOf is the request that a claim makes. class is nil where the claim's class is not known.
func requestOf(c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) Request {
	r := Request{
		Volume: VolumeName(c), Namespace: c.Namespace, Claim: c.Name, Size: requested(c), AccessModes: c.Spec.AccessModes,
		Source: sourceOf(c), Selector: c.Spec.Selector != nil,
	}
	if mode := c.Spec.VolumeMode; mode != nil {
		r.VolumeMode = *mode
	}
	if name := c.Spec.VolumeAttributesClassName; name != nil {
		r.AttributesClass = *name
	}
	if class != nil {
		r.Class, r.Topologies = class.Name, class.AllowedTopologies
	}
	return r
}

// sourceOf is what a claim's volume is filled from, nil for an empty volume. The API server copies
// dataSource to dataSourceRef (pkg/api/persistentvolumeclaim, NormalizeDataSources).
func sourceOf(c *corev1.PersistentVolumeClaim) *corev1.TypedObjectReference {
	if from := c.Spec.DataSource; from != nil && c.Spec.DataSourceRef == nil {
		return &corev1.TypedObjectReference{APIGroup: from.APIGroup, Kind: from.Kind, Name: from.Name}
	}
	return c.Spec.DataSourceRef
}

// otherNodes reports whether the cluster has nodes beside this one.
func (f RequestFacts) otherNodes() bool { return f.Nodes > 1 }

// classRefused: the class names a pool that this node does not have, or a parameter that no node
// knows.
func classRefused(f RequestFacts) (Refusal, bool) {
	if f.Refusal == nil {
		return Refusal{}, false
	}
	return *f.Refusal, true
}

// populatorFills: the populator makes a claim of its own, fills its volume and has the volume bound
// to this claim (KEP-1495; lib-volume-populator).
func populatorFills(f RequestFacts) (Refusal, bool) {
	if !populated(f.Request.Source) {
		return Refusal{}, false
	}
	return Refusal{Help: ByItself, Reason: ReasonPopulator, Message: fmt.Sprintf(
		"waits for the populator of %.63q %.63q, which makes the volume and binds it", f.Request.Source.Kind, f.Request.Source.Name)}, true
}

// populated reports whether a volume with this source comes from a volume populator: its source is
// neither a claim nor a snapshot.
func populated(from *corev1.TypedObjectReference) bool {
	return from != nil && !(ofClaim(from) || ofSnapshot(from))
}

func blockRequested(f RequestFacts) (Refusal, bool) {
	return Refusal{Reason: ReasonBlockMode, Message: "volumeMode Block: this provisioner makes directories, not block devices; use volumeMode Filesystem"},
		f.Request.VolumeMode == corev1.PersistentVolumeBlock
}

var nodeAccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteOncePod}

// accessModeUnsupported: a volume of one node's disk is shared by the pods of that node, which in a
// cluster of one node are all there are. A node that joins later cannot run them; the volume's
// affinity says so to the scheduler.
func accessModeUnsupported(f RequestFacts) (Refusal, bool) {
	if f.Pool.OfAllNodes() || !f.otherNodes() {
		return Refusal{}, false
	}
	for _, mode := range f.Request.AccessModes {
		if !slices.Contains(nodeAccessModes, mode) {
			return Refusal{Reason: ReasonAccessMode,
				Message: fmt.Sprintf("access mode %s: a volume of this class is on one node's disk; use ReadWriteOnce or ReadWriteOncePod", mode)}, true
		}
	}
	return Refusal{}, false
}

func selectorSet(f RequestFacts) (Refusal, bool) {
	return Refusal{Reason: ReasonSelector, Message: "selector: a claim that selects existing volumes by label is not provisioned; remove spec.selector"},
		f.Request.Selector
}

// attributesClassSet: the binder wants the volume to have the claim's VolumeAttributesClass
// (pkg/controller/volume/ persistentvolume, checkVolumeSatisfyClaim), and the API server takes one
// on CSI volumes alone (pkg/apis/core/validation, ValidatePersistentVolumeSpec). An empty name is
// none.
func attributesClassSet(f RequestFacts) (Refusal, bool) {
	why := "only CSI volumes can have one, and Kubernetes would never bind this claim to another"
	if f.Pool.Source == SourceCSI {
		why = noAttributes
	}
	return Refusal{Reason: ReasonAttributesClass,
		Message: fmt.Sprintf("volumeAttributesClassName %s: %s; use a claim without it",
			words.Quoted(f.Request.AttributesClass), why)}, f.Request.AttributesClass != ""
}

// topologyMismatch: a volume that every node reaches is in every topology.
func topologyMismatch(f RequestFacts) (Refusal, bool) {
	mismatch := f.Pool.Scope != ScopeShared && f.NodeLabels != nil && len(f.Request.Topologies) > 0 &&
		!slices.ContainsFunc(f.Request.Topologies, f.matches)
	return Refusal{Help: ByNode, Reason: ReasonTopology, Message: "class " + f.Request.Class + ": allowedTopologies do not include this node"}, mismatch
}

func (f RequestFacts) matches(term corev1.TopologySelectorTerm) bool {
	for _, want := range term.MatchLabelExpressions {
		if value, has := f.NodeLabels[want.Key]; !has || !slices.Contains(want.Values, value) {
			return false
		}
	}
	return true
}

// nodeUnknown: without the label there is nothing to write the volume's affinity with.
func nodeUnknown(f RequestFacts) (Refusal, bool) {
	message := "the cluster has no node of this name"
	if f.NodeLabels != nil {
		message = "the Node object has no label " + HostnameLabel
	}
	return Refusal{Help: ByItself, Reason: ReasonNodeNotFound, Message: "node " + f.Node + ": " + message, After: retryAfter},
		f.NodeLabels[HostnameLabel] == "" && f.Pool.Scope != ScopeShared
}

func nameInvalid(f RequestFacts) (Refusal, bool) {
	if f.Pool.Directory == nil {
		return Refusal{}, false // of no pool
	}
	_, err := f.Pool.Directory(f.Request.Volume, f.Request.Namespace, f.Request.Claim)
	if err == nil {
		return Refusal{}, false
	}
	return Refusal{Help: ByNode, Reason: ReasonBadName, Message: "pool " + f.Pool.Name + ": " + err.Error()}, true
}

// poolInUse: the other daemon may be one of this node, too, and may be about to provision the
// claim, which therefore stays with this node.
func poolInUse(f RequestFacts) (Refusal, bool) {
	return Refusal{Help: ByItself, Reason: ReasonPoolInUse, After: retryAfter,
		Message: "node " + f.Node + ": pool " + f.Pool.Name + ": " + f.Closed}, f.Held
}

func poolClosed(f RequestFacts) (Refusal, bool) {
	if f.Closed == "" {
		return Refusal{}, false
	}
	reason := ReasonPoolClosed
	if f.Cordoned {
		reason = ReasonCordoned
	}
	return Refusal{Help: ByNode, Reason: reason,
		Message: f.lacks("pool " + f.Pool.Name + ": " + f.Closed)}, true
}

func tooLarge(f RequestFacts) (Refusal, bool) {
	if fits(f.Request.Size, f.Room.Free) {
		return Refusal{}, false
	}
	return Refusal{Help: ByNode, Reason: ReasonNotEnoughSpace,
		Message: f.lacks(spaceMissing(f.Pool, f.Request.Size, f.Room))}, true
}

// lacks is the sentence about the pool, or, where the volume may be in several, about each.
func (f RequestFacts) lacks(pool string) string {
	if len(f.Disks) > 1 {
		return eachLacks(f.Request.Size, f.Disks)
	}
	return pool
}

// spaceMissing is why a volume of this size cannot be had. What is promised counts, whether or not
// it is used.
func spaceMissing(pool Pool, want resource.Quantity, room capacity.Room) string {
	return fmt.Sprintf("pool %s: the claim requests %s, and %s",
		pool.Name, words.Name(want.String()), roomLeft(room))
}

// roomLeft names the volumes to which most is promised: one with a wrong size is found so.
func roomLeft(room capacity.Room) string {
	left := fmt.Sprintf("%s is available for new volumes: %s is free, and %s is promised "+
		"to volumes",
		words.Size(room.Free), words.Size(room.Available), words.Size(room.Promised))
	var largest []string
	for _, one := range room.Largest {
		if one.Bytes > 0 {
			largest = append(largest, words.Size(one.Bytes)+" to "+words.Name(one.Volume))
		}
	}
	if len(largest) == 0 {
		return left
	}
	return left + " (" + strings.Join(largest, ", ") + ")"
}
