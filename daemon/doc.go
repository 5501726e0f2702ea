// Package daemon is where the parts meet: it reads the configuration, connects the watches, the
// pools and the controllers, and tells the service manager how it goes.
//
// One sentence: gather facts, decide in a pure ordered list of rules, act in small named idempotent
// steps, and say once what happened.
//
//	kube (watches) --> controllers --> rules    pure: what to do with a claim, a volume, a record
//	                        |  \----> disk/gate <-- host/prober <-- hostcheck <-- hostcheck/mounts
//	                        \-------> disk --> disk/volume    a handle on an open pool; its directories
//
// Below it are ten doors. TestArrows prints them, and why one leads to another:
//
//	config         files to Config
//	spec           nouns: the record, the capacity account, snapshot API types
//	rules          plan (claims, volumes, snapshots), adoptrules, claimfilter, clustercheck
//	disk           handles, gate, volume, tree and treecopy, usage
//	kube           requests, watches, events; claimindex, by which the API server labels claims
//	controllers    when work begins, waits, is repeated: claims, volumes, copies, pools, cluster;
//	               leases, ownership of a pool, capacity
//	node           for kubelet: csi, inline volumes, pause; and what confines processes
//	host           this machine: state, prepare, prober, mountpoint, ipc
//	adopt          what a person asks for: adopt, follow (import), forget (forget-node), why
//	metrics        counters and gauges
//
// A claim: kube's informer brings it, controllers gathers facts, plan.ForClaim decides,
// disk.Handle.Create makes the directory (record, staging, rename), kube creates the
// PersistentVolume, an event says so. Which claims the API server sends at all is the claim index's
// work, where its policy is in force.
//
// A mount event: mounts.Watch says that something changed, each pool is looked at again, the gate
// closes before anything is reported, and opens after the report; then what waited is queued again.
//
// What lies under a mount point the daemon asks another process, which has the capability for it
// and no network (package mountpoint).
//
// A volume: its object is Released, the policy says Delete, the disk has our record, the gate is
// open: the directory is renamed into the trash and that is made durable, the object goes, the
// trash is emptied in the background, the record goes last.
//
// A snapshot, a clone, a volume made from a snapshot: a copy of a directory, which shares blocks
// where the filesystem can (package treecopy), made aside and published as a volume is. The pods of
// its source stand still meanwhile where the pool says so (packages pause and freeze).
//
// A volume with source csi is mounted for its pod by another process (package csi), and only while
// its pool is open. An inline volume that process asks the daemon to make (package inline).
//
// What a class can get on this node the scheduler reads in CSIStorageCapacity objects (package
// storagecapacity).
//
// A volume of another provisioner becomes one of ours by adopt: adoptrules.ForAdoption decides,
// volume.Adopt writes the record, the label on its object brings it to the daemon. Volumes follow a
// disk to another node by import (package follow).
//
// A volume of scope every-node: one node makes the object and one removes it, after a staggered
// delay (package everynode); plan.ForPart decides about each node's own directory, and a tombstone
// tells the nodes that were off that its claim is gone.
//
// A shared pool is worked in by the daemon that holds its Lease (package leadership); whatever one
// does that held it before does no harm (volume, shared.go).
//
// What holds, whatever happens, is in docs/dev/proofs.md; where a crash may fall stands at the
// line.
//
// The package will not decide or act itself, and it exits only when it is told to or when its
// configuration cannot be read at start: an API server that is away is waited for.
package daemon
