// Package everynode tests pools of scope every-node as a cluster of several nodes meets them: real
// daemons, each in a mount namespace of its own in which the pool stands at the same path with a
// filesystem of its own, a real API server, scheduler and DaemonSet controller. There are no
// kubelets: pods are scheduled and never run, and what a pod would find is looked for by the test.
//
// What it caught when the product was broken on purpose: data removed because the object was
// absent, without a tombstone (TestFinalizerTakenOff, TestAnotherCluster, TestRestored); an object
// looked for in the watch's memory and not in the API (TestObjectMadeAgain); the turns of all nodes
// at once, 500 creates for 10 claims and three reads for each node and claim (TestFiftyNodes). What
// it caught by itself: each node asking four times for a volume that goes, and thirty of fifty
// nodes removing one object on a busy machine (TestFiftyNodes).
package everynode

import (
	"os"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// plane is the control plane of all tests but those that kill theirs.
var plane fixture.Plane
