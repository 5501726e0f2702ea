package config

import (
	"os"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }
