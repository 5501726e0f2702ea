// Package everynode tests pools of scope every-node as a cluster of several nodes meets them: real
// daemons, each in a mount namespace of its own in which the pool stands at the same path with a
// filesystem of its own, a real API server, scheduler and DaemonSet controller. There are no kubelets:
// pods are scheduled and never run, and what a pod would find is looked for by the test.
//
// What it caught when the product was broken on purpose: data removed because the object was absent,
// without a tombstone (TestFinalizerTakenOff, TestAnotherCluster, TestRestored); an object looked for in
// the watch's memory and not in the API (TestObjectMadeAgain); everybody's turn at once, 500 creates for 10
// claims and three reads for each node and claim (TestFiftyNodes). What it caught by itself: each
// node asking four times for a volume that goes, and thirty of fifty nodes removing one object on a
// busy machine (TestFiftyNodes).
package everynode

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

var (
	plane     *cluster.Cluster
	planeOnce sync.Once
	planeErr  error
)

// shared starts the control plane with the first test that wants it. It ends with this process,
// whose child it is.
func shared(t *testing.T) *cluster.Cluster {
	t.Helper()
	planeOnce.Do(func() { plane, planeErr = newPlane(t) })
	if planeErr != nil {
		t.Fatal(fmt.Errorf("the control plane: %w", planeErr))
	}
	return plane
}

// newPlane is a control plane in which the daemons have the rights that the product asks for.
func newPlane(t *testing.T) (*cluster.Cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{Dir: hosttest.Dir(t)})
	if err != nil {
		return nil, err
	}
	manifests, err := exec.CommandContext(ctx, binary(), "manifests").Output()
	if err != nil {
		return nil, fmt.Errorf("hostpath-provisioner manifests: %w", err)
	}
	return c, c.Apply(ctx, manifests)
}

func binary() string {
	if b := os.Getenv("HOSTPATH_PROVISIONER"); b != "" {
		return b
	}
	return filepath.Join(rig.Root(), ".build", "hostpath-provisioner")
}
