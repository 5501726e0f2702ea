package plan

import "slices"

// Self is the daemon that a decision is made for: the provisioner names that it serves, and its
// node.
type Self struct {
	Provisioner string   // the StorageClass.provisioner of its own classes
	Aliases     []string // other provisioners' names, whose classes, claims and volumes it serves as well
	Node        string   // the name of its Node object
	// AwaitRequest: a claim is not provisioned before kube-controller-manager asked a provisioner
	// for it (StorageProvisioner).
	AwaitRequest bool
}

// Serves reports whether classes, claims and volumes of this provisioner name are the daemon's.
func (s Self) Serves(provisioner string) bool {
	return provisioner == s.Provisioner || slices.Contains(s.Aliases, provisioner)
}
