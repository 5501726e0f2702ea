// Package controllers has the loops for claims, volumes, records and pools: for each object it
// gathers facts, asks package plan for the verdict, acts in small idempotent steps, and reports
// once what happened.
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
