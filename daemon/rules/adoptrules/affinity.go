package adoptrules

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// named reports whether a volume's affinity names this node and no other: each of its terms has
// nothing but single values that are this node's, one of them its name. That other nodes are
// excluded (NotIn), that a label is there (Exists) or that some nodes may have it (several values)
// does not say where the data is.
func (f Facts) named() bool {
	if !plan.HasAffinity(f.Volume) || len(f.Volume.Spec.NodeAffinity.Required.NodeSelectorTerms) == 0 {
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

func namesNode(key string) bool { return key == plan.HostnameLabel || key == plan.KubevirtNodeLabel }

// values are what this node has for a key, as other systems mean it: kubevirt, microk8s and older
// versions of rancher's write the node's name where Kubernetes compares the hostname label, and the
// node may have lost the label of kubevirt's CSI driver.
func (f Facts) values(key string) []string {
	var all []string
	if value, has := f.NodeLabels[key]; has {
		all = append(all, value)
	}
	if namesNode(key) {
		all = append(all, f.Node)
	}
	return all
}

// Elsewhere reports whether a volume's affinity excludes this node, as Kubernetes and as other
// systems mean it.
func (f Facts) Elsewhere() bool {
	if !plan.HasAffinity(f.Volume) || plan.SelectsNode(f.Volume.Spec.NodeAffinity.Required, f.Node, f.NodeLabels) {
		return false
	}
	return !plan.SelectsNodeBy(f.Volume.Spec.NodeAffinity.Required, f.Node, func(r corev1.NodeSelectorRequirement) bool {
		if r.Operator == corev1.NodeSelectorOpIn {
			return slices.ContainsFunc(f.values(r.Key), func(value string) bool { return slices.Contains(r.Values, value) })
		}
		value, has := f.NodeLabels[r.Key]
		return plan.MeetsRequirement(r, value, has)
	})
}
