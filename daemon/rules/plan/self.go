package plan

import "slices"

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
