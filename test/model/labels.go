package model

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// A daemon watches the volume objects with its node's label, or with the scope of a pool that nodes
// share. People edit it, and the watch brings the object no more; and they set it right.

// anotherNode is in the label in place of the volume's node.
const anotherNode = "another-node"

// strayed edits the label of an object that is made as the product makes it.
func (v object) strayed(made *corev1.PersistentVolume) {
	switch {
	case !v.astray:
	case int(v.in) == nodePool:
		made.Labels[plan.NodeLabel] = anotherNode
	default:
		delete(made.Labels, plan.ScopeLabel)
	}
}

// aloneOf is the node whose alone a volume of the second pool is, as in object.
func aloneOf(v *corev1.PersistentVolume) uint8 {
	for node := range nodes {
		if v.Labels[plan.NodeLabel] == plan.NodeLabelValue(nodeName(node)) {
			return 1 + uint8(node)
		}
	}
	return 0
}

func labelEdited(_ *worker, s *state, cell int) bool {
	return changed(s, cell, labels, func(v *object) bool {
		v.astray = !v.astray
		return v.of == 0 && int(v.in) != everyPool && !v.peer
	})
}
