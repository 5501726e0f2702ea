// Package csi is the daemon's CSI driver on a node: the services Identity and Node of the Container
// Storage Interface, and kubelet's registration of plugins, on sockets that the service manager
// holds. It mounts the directories of recorded volumes for pods.
//
// It runs as a process of its own in the host's mount namespace, and wants neither the daemon nor
// the API: the configuration, the pools' markers and the records are on the host. Each volume that
// is published is looked up in an open pool, that is one which hostcheck has found in order after
// the call came.
//
// The package makes, changes and removes no volume, writes nothing in a pool, and uses nothing as a
// path that came from the API but the target that kubelet names (package target).
package csi
