// Package e2e tests the daemon's binary as a user meets it: against a real API server, on real
// filesystems, through claims, events and directories. Nothing in it calls the daemon's packages.
//
// One control plane serves all tests; each test has its own provisioner name, namespace, Node
// objects and daemons, so that they run side by side.
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
