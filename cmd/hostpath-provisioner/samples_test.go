package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/adoptrules"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pages"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// shows wants a sample of a page to be the end of what the program said.
func shows(t *testing.T, said, page, heading string) {
	t.Helper()
	said, _, _ = strings.Cut(said, "\nexit ") // of a story
	if err := pages.Open(rig.Root()).Sample(said, page, heading, 0); err != nil {
		t.Error(err)
	}
}

// What configuration.md shows of mistakes.
func TestSampleOfMistakes(t *testing.T) {
	h := newHost(t, "\n\n[pool.fast]\nmodee = '0700'\npath = '/srv/fast'\n\n\n[pool.slow]\npath = 'srv/slow'\n")
	said := h.call("check", "--config-only")
	shows(t, strings.ReplaceAll(said, " /config.toml", " /etc/hostpath-provisioner/config.toml"), "configuration.md", "")
}

// What operation.md shows of a closed pool.
func TestSampleOfAClosedPool(t *testing.T) {
	h := newHost(t, minimal)
	const away = "/srv/fast is not a mount point: it lies on / (ext4, /dev/vda1)"
	promised := uint64(2 << 20)
	h.status(daemon.Status{
		Time: noon, PID: os.Getpid(), Version: "v0.2.0", Node: "node-a", Ready: true,
		Provisioner: plan.DefaultProvisioner,
		Sentence:    "pool fast is closed: " + away + "; 0 of 1 pool open on node node-a, 2 volumes, 0 B for new ones",
		Pools: []daemon.PoolStatus{{Name: "fast", Path: "/srv/fast", Scope: "node", Since: noon.Add(-time.Millisecond),
			Reason: "NotMounted", Message: away, Promised: &promised, Volumes: 2}},
	})
	shows(t, strings.ReplaceAll(h.call("status"), "pid PID", "pid 7"), "operation.md", "Status")
}

// What migration.md shows of an adoption.
func TestSampleOfAnAdoption(t *testing.T) {
	row := adopt.Row{Volume: "pvc-3d0b9a42-6f2e-4c0e-9d8e-1f0a5b7c2d11", Claim: "shop/db",
		Path: "/srv/fast/pvc-3d0b9a42-6f2e-4c0e-9d8e-1f0a5b7c2d11", Provisioner: "rancher.io/local-path",
		Action: adoptrules.Adopt}
	refused := row
	refused.Claim, refused.Path, refused.Action = "shop/reports", "/srv/fast/reports", plan.Refuse
	refused.Message = `the pool has no directory "reports"`
	var out bytes.Buffer
	p := &program{stdout: &out, stderr: new(bytes.Buffer)}
	if err := p.tellAdopted([]adopt.Row{row, refused}, adoption{dryRun: true}); err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(out.String(), "\n\n")
	shows(t, table, "migration.md", "How it goes")
}
