package follow

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// Actions for a volume, beside plan.Keep for one that stays as it is and is told of, plan.Refuse,
// and plan.Ignore.
const (
	Move   plan.Action = "move"   // its object is deleted, and made again for this node
	Finish plan.Action = "finish" // an earlier call has begun: what is left of Move is done
	Drop   plan.Action = "drop"   // its object goes, as it would have on the former node
)

// Intent is what a record has of an object that is about to be made.
type Intent struct {
	UID      types.UID                `json:"uid"` // of the object that goes
	Deleting bool                     `json:"deleting,omitempty"`
	Claimed  bool                     `json:"claimed,omitempty"` // its claim was there
	Begun    bool                     `json:"begun,omitempty"`   // this node has it go
	Object   *corev1.PersistentVolume `json:"object"`
}

// Facts is everything that the decision about one volume depends on. Self is this node, which has
// the disk now.
type Facts struct {
	plan.Self
	From       string // the node that had it
	Pool       plan.Pool
	Volume     *corev1.PersistentVolume // the object of the name, nil: there is none
	Record     *record.Record           // nil: the pool has none
	Archived   bool                     // the whole volume is in the archive, its record, too
	Unreadable string                   // why it could not be read
	Intent     *Intent                  // of the record
	User       string                   // a pod on that node which uses the volume's claim
	Hostname   string                   // the value of this node's hostname label
	Park       string                   // the stream in which it is sent: no node is to have it
	Stream     string                   // the one that it came in
}

var rules = []func(Facts) (plan.Verdict, bool){
	nothingToMove, cutOff, arrived, ofThirdNode, takenBack, unreadable, archived, notRecorded,
	sentAway, notServed, otherData, inUse, heldByOthers,
}

// For decides about one volume.
func For(f Facts) plan.Verdict {
	return plan.Decide(rules, f, plan.Verdict{Action: Move})
}

func nothingToMove(f Facts) (plan.Verdict, bool) {
	return plan.Verdict{Action: plan.Ignore}, f.Volume == nil && f.Intent == nil
}

// cutOff: a call died after it had deleted the object, and before it had made the other one.
func cutOff(f Facts) (plan.Verdict, bool) {
	return plan.Verdict{Action: Finish}, f.Volume == nil
}

// arrived: the object is this node's. An intent in the record is left of a call that died. Where
// the node is the same as before, the object may say what the node or the pool was like then.
func arrived(f Facts) (plan.Verdict, bool) {
	here := f.Volume.Labels[plan.NodeLabel] == plan.NodeLabelValue(f.Node)
	switch {
	case here && f.Intent != nil && (f.From != f.Node || f.Intent.UID != f.Volume.UID):
		return plan.Verdict{Action: Finish}, true
	case here && f.From == f.Node && f.Record != nil && (f.Intent != nil || f.outdated()):
		return plan.Verdict{}, false
	}
	return plan.Verdict{Action: plan.Ignore}, here
}

// outdated reports whether the object would be another one if it was made now.
func (f Facts) outdated() bool {
	now, next := f.Volume, Successor(f)
	if ref := now.Spec.ClaimRef; ref != nil && ref.ResourceVersion != "" {
		now = now.DeepCopy()
		now.Spec.ClaimRef.ResourceVersion = ""
	}
	return !equality.Semantic.DeepEqual(now.Spec, next.Spec) ||
		!maps.Equal(now.Labels, next.Labels) || !maps.Equal(now.Annotations, next.Annotations)
}

// ofThirdNode: whoever has this volume, it is not the node that had the disk. Of objects that are
// not recorded here it is not even said.
func ofThirdNode(f Facts) (plan.Verdict, bool) {
	label := f.Volume.Labels[plan.NodeLabel]
	v := plan.Verdict{Action: plan.Ignore}
	if f.Record != nil {
		v = plan.Verdict{Action: plan.Keep, Message: fmt.Sprintf(
			"its object names the node %s, not %s", words.Quoted(label), f.From)}
	}
	return v, label != plan.NodeLabelValue(f.From)
}

// takenBack: pods may have written to it since the stream that it came in.
func takenBack(f Facts) (plan.Verdict, bool) {
	return plan.Verdict{Action: plan.Refuse, Message: "node " + f.From +
			" has it again: it was taken back, or sent again, since the stream was written"},
		f.Stream != "" && !plan.IsParked(f.Volume, f.Stream)
}

func unreadable(f Facts) (plan.Verdict, bool) {
	return plan.Verdict{Action: plan.Refuse, Message: f.Unreadable}, f.Unreadable != ""
}

// archived: the former node's daemon died when only the object was left to be removed.
func archived(f Facts) (plan.Verdict, bool) {
	switch {
	case !f.Archived:
		return plan.Verdict{}, false
	case !plan.Going(f.Volume):
		return plan.Verdict{Action: plan.Keep, Message: "its data is in the archive"}, true
	case f.Serves(f.Volume.Annotations[plan.ProvisionedBy]) && plan.OthersFinalizer(f.Volume) == "":
		return plan.Verdict{Action: Drop}, true
	}
	return plan.Verdict{}, false
}

// notRecorded: the disk does not prove that it has the volume.
func notRecorded(f Facts) (plan.Verdict, bool) {
	v := plan.Verdict{Action: plan.Keep, Message: "this pool has no record of it"}
	return v, f.Record == nil
}

func notServed(f Facts) (plan.Verdict, bool) {
	by := f.Volume.Annotations[plan.ProvisionedBy]
	return plan.Verdict{Action: plan.Refuse, Message: fmt.Sprintf(
		"its provisioner is %s, which is neither this daemon's nor one of its aliases",
		words.Quoted(by)),
	}, !f.Serves(by)
}

// otherData: the object points to another directory than the one that is recorded for it. The
// pool's own path may be another one on this node.
func otherData(f Facts) (plan.Verdict, bool) {
	at := plan.PathOf(f.Volume)
	return plan.Verdict{Action: plan.Refuse, Message: fmt.Sprintf(
		"its object points to %s, and the record says %s",
		words.Quoted(at), words.Quoted(f.Record.Directory)),
	}, path.Base(at) != f.Record.Directory
}

// sentAway: where the object is the volume went in a stream, and it was written to there since.
func sentAway(f Facts) (plan.Verdict, bool) {
	return plan.Verdict{Action: plan.Keep,
			Message: "it was sent away, and what is here is a copy"},
		f.Record.Sent != "" && f.Record.Retained
}

func inUse(f Facts) (plan.Verdict, bool) {
	return plan.Verdict{Action: plan.Refuse, Message: fmt.Sprintf(
		"pod %s on node %s uses it", f.User, f.From)}, f.User != ""
}

func heldByOthers(f Facts) (plan.Verdict, bool) {
	other := plan.OthersFinalizer(f.Volume)
	return plan.Verdict{Action: plan.Refuse, Message: fmt.Sprintf(
		"it has the finalizer %q: its owner has to take it off first", other)}, other != ""
}

// named are the annotations that other systems put on volumes of ours with the node's name.
var named = []string{plan.HostPathIdentity, plan.ProvisionOnNode, plan.RancherSelectedNode}

// Successor is the object for this node: of the same name, for the same claim, with everything that
// a volume keeps.
func Successor(f Facts) *corev1.PersistentVolume {
	v := f.Volume
	next := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: v.Name, Labels: maps.Clone(v.Labels), Annotations: maps.Clone(v.Annotations),
			OwnerReferences: v.OwnerReferences,
			Finalizers: slices.DeleteFunc(slices.Clone(v.Finalizers),
				func(one string) bool { return one == plan.PVProtection }),
		},
		Spec: *v.Spec.DeepCopy(),
	}
	delete(next.Annotations, plan.SentAnnotation)
	maps.Copy(next.Labels, plan.VolumeLabels(f.Pool, f.Node))
	for _, key := range named {
		if next.Annotations[key] == f.From {
			next.Annotations[key] = f.Node
		}
	}
	if ref := next.Spec.ClaimRef; ref != nil {
		ref.ResourceVersion = ""
	}
	switch {
	case f.Park != "":
		if next.Annotations == nil {
			next.Annotations = map[string]string{}
		}
		next.Annotations[plan.SentAnnotation] = f.Park
		next.Spec.NodeAffinity = plan.Parked(f.Park)
	case plan.HasAffinity(v):
		next.Spec.NodeAffinity = plan.NodeAffinity(f.Hostname)
	}
	at := f.Pool.Path + "/" + f.Record.Directory
	switch s := &next.Spec.PersistentVolumeSource; {
	case s.HostPath != nil:
		s.HostPath.Path = at
	case s.Local != nil:
		s.Local.Path = at
	case s.CSI != nil && next.Annotations[plan.PathAnnotation] != "":
		next.Annotations[plan.PathAnnotation] = at
	case s.CSI != nil:
		s.CSI.VolumeAttributes[plan.AttributePool] = f.Pool.Name
		s.CSI.VolumeAttributes[plan.AttributePath] = at
	}
	return next
}

// Differs is what an object that has the name of the one that is to be made has in another way, ""
// if it is that one.
func Differs(existing, want *corev1.PersistentVolume) string {
	uid := func(v *corev1.PersistentVolume) types.UID {
		if v.Spec.ClaimRef == nil {
			return ""
		}
		return v.Spec.ClaimRef.UID
	}
	switch {
	case existing.Labels[plan.NodeLabel] != want.Labels[plan.NodeLabel]:
		return fmt.Sprintf("it is on node %q", existing.Labels[plan.NodeLabel])
	case plan.PathOf(existing) != plan.PathOf(want):
		return fmt.Sprintf("it points to %q", plan.PathOf(existing))
	case uid(want) != "" && uid(existing) != uid(want):
		return "it is for another claim"
	}
	return ""
}

// encode is an intent as a record has it, decode reads it.
func (i Intent) encode() (string, error) {
	text, err := json.Marshal(i)
	return string(text), err
}

func decode(text string) (*Intent, error) {
	if text == "" {
		return nil, nil
	}
	i := &Intent{}
	err := json.Unmarshal([]byte(text), i)
	if err == nil && i.Object == nil {
		err = errors.New("there is none")
	}
	if err != nil {
		return nil, fmt.Errorf("the object that must be made again: %w", err)
	}
	return i, nil
}
