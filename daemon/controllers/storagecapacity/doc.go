// Package storagecapacity tells the scheduler what each class can still get on this node: it
// publishes CSIStorageCapacity objects, which kube-scheduler compares with what a pod's claims
// request before it chooses a node (pkg/scheduler/framework/plugins/volumebinding,
// hasEnoughCapacity).
//
// There is one object for each class of the daemon's own provisioner with WaitForFirstConsumer, for
// this node alone, owned by its Node; the scheduler compares nothing for other classes. Both
// capacity and maximumVolumeSize are what one more volume can get. An object is raised at once,
// because a raised one wakes the pods that wait; it is lowered some seconds later, because a claim
// that comes too early is refused and given back. All of a node's requests are paid from one
// budget, and what is due takes turns.
//
// The scheduler looks at the objects when the CSIDriver of the provisioner's name has
// storageCapacity: true, and from then on chooses no node that has none. So the Publisher sets that
// only after it has published, and a review keeps, for each class, one more object for the nodes that
// publish nothing: those of daemons that do not know of this (an upgrade may take days), and of
// those that are configured not to. They can be chosen as before, after all others where the
// scheduler scores by capacity.
//
// The objects are hints. Two claims that are compared with the same number are told apart by the
// pool's own account (package capacity).
//
// The package makes no CSIDriver, and touches none that an administrator did not make from the
// manifests. It looks at no pool.
package storagecapacity
