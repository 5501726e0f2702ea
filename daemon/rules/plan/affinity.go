package plan

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// HasAffinity reports whether a volume object limits the nodes that can use it.
func HasAffinity(v *corev1.PersistentVolume) bool {
	return v.Spec.NodeAffinity != nil && v.Spec.NodeAffinity.Required != nil
}

// Parked is the affinity of a volume that was sent in a stream: no node has this label. So no pod
// is scheduled to the volume, and kubelet mounts it for none that is, until it was received.
func Parked(stream string) *corev1.VolumeNodeAffinity {
	return affinity(SentAnnotation, stream)
}

// OfNoNode reports whether a volume object has such an affinity.
func OfNoNode(v *corev1.PersistentVolume) bool {
	if HasAffinity(v) && len(v.Spec.NodeAffinity.Required.NodeSelectorTerms) == 1 {
		first := v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions
		return len(first) == 1 && first[0].Key == SentAnnotation
	}
	return false
}

// IsParked reports whether no pod can use a volume since it was written to this stream.
func IsParked(v *corev1.PersistentVolume, stream string) bool {
	return v.Annotations[SentAnnotation] == stream &&
		equality.Semantic.DeepEqual(v.Spec.NodeAffinity, Parked(stream))
}

// OffItsNode decides whether a volume of this node is told that no pod comes to it any more: its
// affinity, which nothing can change, is of other labels than the node has now.
func (s Self) OffItsNode(v *corev1.PersistentVolume, labels map[string]string) (Verdict, bool) {
	if labels == nil || !HasAffinity(v) || OfNoNode(v) ||
		ScopeOf(v) != ScopeNode || !home(v, ScopeNode, s.Node) ||
		SelectsNode(v.Spec.NodeAffinity.Required, s.Node, labels) {
		return Verdict{}, false
	}
	return Verdict{Action: Wait, Reason: ReasonNodeRelabelled, Message: fmt.Sprintf(
		"no pod can be scheduled to the volume: its node affinity is not node %s's, whose label %s "+
			"is %s now; set the label that it had", s.Node, HostnameLabel,
		words.Quoted(labels[HostnameLabel]))}, true
}

// OffItsPath decides whether a volume of this node is told that pods look for its data in another
// place than where it is. Where that is so of most volumes of a pool, the pool is closed instead
// (package ownership).
func (s Self) OffItsPath(v *corev1.PersistentVolume, pool Pool, r record.Record) (Verdict, bool) {
	at, want := PathOf(v), pool.Path+"/"+r.Directory
	stays := v.DeletionTimestamp == nil && !Unclaimed(v) && !OnEveryNode(v)
	if r.Place != record.InPool || at == want || !stays || !home(v, pool.Scope, s.Node) ||
		!s.Serves(v.Annotations[ProvisionedBy]) {
		return Verdict{}, false
	}
	return Verdict{Action: Wait, Reason: ReasonPathMismatch, Message: fmt.Sprintf(
		"node %s has the data of this volume in %s, and pods that use it look in %s",
		s.Node, want, words.Quoted(at))}, true
}

// SelectsNode is a node selector's meaning
// (k8s.io/component-helpers/scheduling/corev1/nodeaffinity): one term is enough, an empty one
// matches nothing.
func SelectsNode(selector *corev1.NodeSelector, node string, labels map[string]string) bool {
	return SelectsNodeBy(selector, node, func(r corev1.NodeSelectorRequirement) bool {
		value, has := labels[r.Key]
		return MeetsRequirement(r, value, has)
	})
}

// SelectsNodeBy is SelectsNode with another meaning of expressions.
func SelectsNodeBy(selector *corev1.NodeSelector, node string, met func(corev1.NodeSelectorRequirement) bool) bool {
	return slices.ContainsFunc(selector.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		for _, r := range term.MatchExpressions {
			if !met(r) {
				return false
			}
		}
		for _, r := range term.MatchFields {
			if r.Key != "metadata.name" || !MeetsRequirement(r, node, true) {
				return false
			}
		}
		return len(term.MatchExpressions)+len(term.MatchFields) > 0
	})
}

// MeetsRequirement reports whether a label meets a requirement: its value, and whether the node has
// it.
func MeetsRequirement(r corev1.NodeSelectorRequirement, value string, has bool) bool {
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return has && slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpNotIn:
		return !has || !slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpExists:
		return has
	case corev1.NodeSelectorOpDoesNotExist:
		return !has
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		return has && len(r.Values) == 1 && ordered(value, r.Values[0], r.Operator)
	default:
		return false
	}
}

// ordered compares labels that are whole numbers.
func ordered(value, than string, operator corev1.NodeSelectorOperator) bool {
	a, err := strconv.ParseInt(value, 10, 64)
	b, wrong := strconv.ParseInt(than, 10, 64)
	if err != nil || wrong != nil {
		return false
	}
	return operator == corev1.NodeSelectorOpGt && a > b || operator == corev1.NodeSelectorOpLt && a < b
}

// NodeReady reports whether a Node is Ready, and since when it is or is not. One that has not said
// so yet is new, and not Ready since it was made.
func NodeReady(n *corev1.Node) (is bool, since time.Time) {
	at := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady
	})
	if at < 0 {
		return false, n.CreationTimestamp.Time
	}
	c := n.Status.Conditions[at]
	return c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
}
