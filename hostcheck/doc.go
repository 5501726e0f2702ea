// Package hostcheck reports whether this host is what a pool needs it to be, so that
// volumes may be made there? It gathers facts, and an ordered list of pure rules turns them into a
// report; every reason in a report is born in one rule.
//
// It only reads. It never changes the host, it keeps no filesystem busy between two looks, it does
// not log, and it knows nothing of the daemon, its configuration or Kubernetes.
package hostcheck
