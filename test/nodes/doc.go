// Package nodes proves the daemon's work with real pods: two or three nodes on this machine, each
// with its own kubelet, container runtime, pool and daemon, joined to a real control plane.
//
// Its tests want packages that CI may lack and minutes that a developer may not have, so they have
// a build tag and targets of their own: "make test-nodes" for the stories of TestNodes and others,
// "make test-upstream" for Kubernetes' own tests (test/upstream). With the tag they never skip.
//
// Everything runs in PID, mount, network and IPC namespaces made for the run: when the first
// process of the PID namespace ends, however it ends, the kernel ends every other one, and with
// them go the mounts, the loop devices, the addresses and the files, which are all on tmpfs. Only
// cgroups outlive their processes; they carry the run's process id in their name and are swept by
// the end of the run, or by the next one. The machine's own files, sysctls and network are not
// changed.
//
// A node here is a mount and a UTS namespace, not a machine: the kernel, its clock and its memory
// are shared, so nothing about a node's crash or a power cut can be learnt here.
package nodes
