//go:build nodes

package nodes

import (
	"os"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestMain(m *testing.M) { os.Exit(isolate(func() int { return hosttest.Main(m) })) }
