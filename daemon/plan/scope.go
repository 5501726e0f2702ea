package plan

import corev1 "k8s.io/api/core/v1"

// Scopes of a pool, that is who can reach a volume in it, as spelt in the configuration.
const (
	ScopeNode      = "node"       // the node that made it
	ScopeEveryNode = "every-node" // each node has a directory of its own
)

// OfAllNodes says whether a claim in this pool concerns every daemon that has it, whichever node was
// chosen for the claim.
func (p Pool) OfAllNodes() bool { return p.Scope != "" && p.Scope != ScopeNode }

// OnEveryNode says, from the object alone, whether a volume has a directory on each node.
func OnEveryNode(v *corev1.PersistentVolume) bool { return v.Labels[ScopeLabel] == ScopeEveryNode }
