// Package ownership finds whose a pool is before work begins in it. A daemon under another node's
// name, or with the kubeconfig of another cluster, would take the volumes of its own pool for
// volumes without an object, and remove them.
//
// The pool's marker names its node and its cluster, and hostcheck compares both. A marker
// that is new names none: then the pool's records (Census) and the API server decide, and
// the marker is completed. The records are counted again at each comparison with the API server, so
// that records of another node, or of another scope, close a pool that was open. Cluster is which
// cluster the API server serves; Pool is one pool's census and marker. The decision is the list of
// rules in rules.go. Locks keeps other daemons of the same host out of the pools that this one
// works in; which daemon of several hosts works in a shared pool is package leadership's.
//
// The package will not open or close a gate: it appends its findings to a pool's report. It reads
// and writes a pool only through a handle of package disk, and changes nothing at the API server.
// What it cannot find out keeps the pool closed.
package ownership
