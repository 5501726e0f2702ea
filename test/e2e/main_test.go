// Package e2e tests the daemon's binary as a user meets it: against a real API server, on real
// filesystems, through claims, events and directories. Nothing in it calls the daemon's packages.
//
// One control plane serves all tests; each test has its own provisioner name, namespace, Node
// objects and daemons, so that they run side by side.
//
// Breakages of the product that made the tests of an unkind neighbour red: without the lock of a pool
// (guard in daemon/locks.go) TestSecondDaemonOnThePool, TestSecondDaemonByAnotherPath and
// TestStateDirectoryLost, in which the second daemon's pool opened; without the version check of records,
// without the comparison of the volume that they name, and with what cannot be parsed taken for no record
// (daemon/volume/record.go), each TestDamagedRecords; without the comparison of markers (markerChanged in
// hostcheck) TestPoolDirectoryReplaced, in which the pool stayed open with another in its place; with a pool that is
// not remembered anew (Opened in daemon/prober) TestStateDirectoryLost; without taking back what could not
// be finished (takeBack in daemon/volume/create.go) TestFullAtEveryWrite, which found the record's file left.
package e2e

import (
	"os"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// plane is the control plane of all tests.
var plane fixture.Plane

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }
