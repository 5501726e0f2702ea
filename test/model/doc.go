// Package model plays every order of events in a small world, breadth-first, and checks named
// invariants in each state.
//
// What decides is the product: the controllers of daemon/controllers with the rules of daemon/rules/plan
// run in it, one piece of work at a time, and each request to the API server and each call to the
// disk is a step between which anything else may happen. The disk is the product's, too:
// daemon/disk/volume works on a real directory, also up to each of its steps at which a process can die.
// What the model replaces is the API server (server.go), kube-controller-manager, pods and people
// (events.go), the watches (a cache that is current or was current once), the queues (any work may
// come at any time that the daemon is idle) and the clock.
//
// The product's code is run once for each thing that it can read (tree.go): its work is a tree of
// requests, of which each response leads to the next request. A state has the place in that tree,
// so that states are small and are compared by a hash.
//
// An order of events is a text. Those in testdata/orders are played in the model (TestKept) and on
// the daemon's binary, a real API server and a real filesystem (TestReal): requests are held by a
// proxy and system calls by test/crash/killer until the order comes to them, and after each event
// objects and files are compared with the model's. Of two nodes each has a daemon, in a mount
// namespace of its own. make test-model-real plays orders that are chosen at random.
//
// It will not see races between goroutines of one daemon but those of beside.go, the order
// in which queues bring work, what depends on durations, and what a power cut takes: other tests
// do.
package model
