// Package daemon is where the parts meet: it reads the configuration, connects the watches, the
// pools and the controllers, and tells the service manager how it goes.
//
// One sentence: gather facts, decide in a pure ordered list of rules, act in small named idempotent
// steps, and say once what happened.
//
//	kube (watches) --> controller --> plan    pure: what to do with a claim, a volume, a record
//	                        |  \----> gate <-- controller/pools <-- hostcheck <-- mounts
//	                        \-------> disk --> volume    a handle on an open pool; what is done in its directory
//
// A claim: kube's informer brings it, controller gathers facts, plan.ForClaim decides,
// disk.Handle.Create makes the directory (record, staging, rename), kube creates the
// PersistentVolume, an event says so.
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
// A volume of another provisioner becomes one of ours by adopt: rules.ForAdoption decides,
// volume.Adopt writes the record, the label on its object brings it to the daemon.
//
// A volume of scope every-node: one node makes the object and one removes it, after a staggered
// delay (package everynode); plan.ForPart decides about each node's own directory, and a tombstone
// tells the nodes that were off that its claim is gone.
//
// A shared pool is worked in by the daemon that holds its Lease (package leadership); whatever one
// does that held it before does no harm (volume, shared.go).
//
// What holds, whatever happens, is in docs/guarantees.md; where a crash may fall stands at the
// line.
//
// The package will not decide or act itself, and it exits only when it is told to or when its
// configuration cannot be read at start: an API server that is away is waited for.
package daemon
