package plan

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// csiNodeLabel is the key of kubevirt's CSI driver, which a node loses with the driver.
const csiNodeLabel = "topology.hostpath.csi/node"

func hasAffinity(v *corev1.PersistentVolume) bool {
	return v.Spec.NodeAffinity != nil && v.Spec.NodeAffinity.Required != nil
}

// named reports whether a volume's affinity names this node and no other: each of its terms has nothing but
// single values that are this node's, one of them its name. That other nodes are excluded (NotIn), that a
// label is there (Exists) or that some nodes may have it (several values) does not say where the data is.
func (f AdoptFacts) named() bool {
	if !hasAffinity(f.Volume) || len(f.Volume.Spec.NodeAffinity.Required.NodeSelectorTerms) == 0 {
		return false
	}
	return !slices.ContainsFunc(f.Volume.Spec.NodeAffinity.Required.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		single := func(r corev1.NodeSelectorRequirement, values ...string) bool {
			return r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1 && slices.Contains(values, r.Values[0])
		}
		name := false
		for _, r := range term.MatchExpressions {
			if !single(r, f.values(r.Key)...) {
				return true
			}
			name = name || namesNode(r.Key)
		}
		for _, r := range term.MatchFields {
			if r.Key != "metadata.name" || !single(r, f.Node) {
				return true
			}
			name = true
		}
		return !name
	})
}

func namesNode(key string) bool { return key == HostnameLabel || key == csiNodeLabel }

// values are what this node has for a key, as other systems mean it: kubevirt, microk8s and older versions
// of rancher's write the node's name where Kubernetes compares the hostname label, and the node may have
// lost the label of kubevirt's CSI driver.
func (f AdoptFacts) values(key string) []string {
	var all []string
	if value, has := f.NodeLabels[key]; has {
		all = append(all, value)
	}
	if namesNode(key) {
		all = append(all, f.Node)
	}
	return all
}

// Elsewhere reports whether a volume's affinity excludes this node, as Kubernetes and as other systems mean it.
func (f AdoptFacts) Elsewhere() bool {
	if !hasAffinity(f.Volume) || matches(f.Volume.Spec.NodeAffinity.Required, f.Node, f.NodeLabels) {
		return false
	}
	return !matchesBy(f.Volume.Spec.NodeAffinity.Required, f.Node, func(r corev1.NodeSelectorRequirement) bool {
		if r.Operator == corev1.NodeSelectorOpIn {
			return slices.ContainsFunc(f.values(r.Key), func(value string) bool { return slices.Contains(r.Values, value) })
		}
		value, has := f.NodeLabels[r.Key]
		return meets(r, value, has)
	})
}

// matches is a node selector's meaning (k8s.io/component-helpers/scheduling/corev1/nodeaffinity): one
// term is enough, an empty one matches nothing.
func matches(selector *corev1.NodeSelector, node string, labels map[string]string) bool {
	return matchesBy(selector, node, func(r corev1.NodeSelectorRequirement) bool {
		value, has := labels[r.Key]
		return meets(r, value, has)
	})
}

// matchesBy is matches with another meaning of expressions.
func matchesBy(selector *corev1.NodeSelector, node string, met func(corev1.NodeSelectorRequirement) bool) bool {
	return slices.ContainsFunc(selector.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		for _, r := range term.MatchExpressions {
			if !met(r) {
				return false
			}
		}
		for _, r := range term.MatchFields {
			if r.Key != "metadata.name" || !meets(r, node, true) {
				return false
			}
		}
		return len(term.MatchExpressions)+len(term.MatchFields) > 0
	})
}

func meets(r corev1.NodeSelectorRequirement, value string, has bool) bool {
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
