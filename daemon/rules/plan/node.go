package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

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
