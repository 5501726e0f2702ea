package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// Scopes of a pool, that is who can reach a volume in it, as spelt in the configuration.
const (
	ScopeNode      = "node"       // the node that made it
	ScopeShared    = "shared"     // every node: the same filesystem is mounted on all of them
	ScopeEveryNode = "every-node" // each node has a directory of its own
)

// OnEveryNode reports, from the object alone, whether a volume has a directory on each node.
func OnEveryNode(v *corev1.PersistentVolume) bool { return v.Labels[ScopeLabel] == ScopeEveryNode }

// OfOneNode reports whether a pool's volumes belong to the node that made them: they have its label
// and its affinity. A pool without a scope is such a pool.
func (p Pool) OfOneNode() bool { return ofOneNode(p.Scope) }

func ofOneNode(scope string) bool { return scope == "" || scope == ScopeNode }

// OfAllNodes reports whether a claim in this pool concerns every daemon that has it, whichever node
// was chosen for the claim.
func (p Pool) OfAllNodes() bool { return !p.OfOneNode() }

// ScopeOf is the scope of a volume's pool, from the object alone.
func ScopeOf(v *corev1.PersistentVolume) string {
	if scope := v.Labels[ScopeLabel]; scope != "" {
		return scope
	}
	return ScopeNode
}

// VolumeLabels are those of a volume that is made in this pool on this node.
func VolumeLabels(p Pool, node string) map[string]string {
	if p.OfOneNode() {
		return map[string]string{NodeLabel: NodeLabelValue(node), PoolLabel: p.Name}
	}
	return map[string]string{ScopeLabel: p.Scope, PoolLabel: p.Name}
}

// home reports whether this node looks after a volume object: the object has this node's label, or
// it is in a pool of that scope that all nodes share.
func home(v *corev1.PersistentVolume, scope, node string) bool {
	if ScopeOf(v) != ScopeNode {
		return ScopeOf(v) == scope
	}
	return v.Labels[NodeLabel] == NodeLabelValue(node)
}

// inherited reports whether a volume bears a node's name and lies in a pool that is shared by now.
// The node has no say there unless its daemon holds the lease, so the holder looks after it, by its
// record.
func inherited(v *corev1.PersistentVolume, scope string) bool {
	return scope == ScopeShared && ScopeOf(v) == ScopeNode
}

// Inherits reports whether the holder of a shared pool's lease has to look at the object of a
// record that no watch of its brings.
func Inherits(v *corev1.PersistentVolume, scope string, place record.Place) bool {
	return v != nil && inherited(v, scope) && (NeedsWork(v) || MayLack(v, place))
}

// Self is the daemon that a decision is made for: the provisioner names that it serves, and its
// node.
type Self struct {
	Provisioner string   // the StorageClass.provisioner of its own classes
	Aliases     []string // other provisioners' names, whose classes, claims and volumes it serves as well
	// InPlaceOf are the aliases that are CSI drivers' names in whose place it is: what their classes
	// can get is published, too.
	InPlaceOf []string
	Node      string // the name of its Node object
	// AwaitRequest: a claim is not provisioned before kube-controller-manager asked a provisioner
	// for it (StorageProvisioner).
	AwaitRequest bool
}

// Drivers are the names under which the daemon publishes what its classes can get.
func (s Self) Drivers() []string { return append([]string{s.Provisioner}, s.InPlaceOf...) }

// Serves reports whether classes, claims and volumes of this provisioner name are the daemon's.
func (s Self) Serves(provisioner string) bool {
	return provisioner == s.Provisioner || slices.Contains(s.Aliases, provisioner)
}
