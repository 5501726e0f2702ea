// Package controllers has the loops for claims, volumes, records and pools: for each object it
// gathers facts, asks package plan for the verdict, acts in small idempotent steps, and reports
// once what happened.
//
// A Controller is a frame and five reconcilers that stand on it. Each has its own state, which no
// other touches but by its methods, and names the others that it uses:
//
//	frame      frame.go, tell.go    pools with their queues; what is told, and how often
//	claims     claims.go            take and give back (assign.go), choose pools (place.go), the claims
//	                                of a pod (together.go), make and publish (provision.go, inflight.go)
//	volumes    volumes.go           remove (removal.go), compare records (records.go, tally.go), inline
//	                                volumes (inline.go)
//	copies     copies.go            clones and restores (sources.go), snapshots (snapshots.go), and how
//	                                they go (snapshotgoes.go)
//	pools      pools.go             probe, report, whose it is and who works in it (owner.go), what its
//	                                volumes take (usage.go)
//	cluster    cluster.go           what is read of the cluster, volumes that are kept for claims
//	                                (kept.go), claims that fit on no node (unplaced.go)
//
// What tests call in place of Run is in step.go.
//
// Each pool has a worker of its own (poolWorker), so that a pool that hangs, is full or is away
// never delays another pool's work. Beside its queues it has what other packages do for the pool:
// leadership elects the daemon that works in a shared one, everynode looks after this node's
// directories of volumes that each node has, disk opens it.
//
// A claim that got its volume, or did not by an error, is reported with the reasons of Kubernetes'
// own controllers (ProvisioningSucceeded, ProvisioningFailed, and VolumeFailedDelete for a volume;
// pkg/controller/volume/events/event.go), which dashboards know. A refusal has a reason of its own,
// the same in the log, the events, the metrics and docs/troubleshooting.md: with one reason for all
// of them neither kubectl get events --field-selector reason=PoolClosed nor an alert on a metric
// could tell them apart.
//
// The package will not decide: the rules are in plan, leadership and hostcheck. It will not touch a
// disk or the API except through disk and the interfaces in ports.go.
package controllers
