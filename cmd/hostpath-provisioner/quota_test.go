package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// limits are the limits of a filesystem, which this machine's kernel does not enforce.
type limits map[uint32]quota.Limit

func (l limits) Get(_ int, id uint32) (quota.Usage, error) {
	return quota.Usage{ID: id, Limit: l[id]}, nil
}
func (l limits) Set(_ int, id uint32, to quota.Limit) error { l[id] = to; return nil }

func (l limits) From(_ int, from uint32) (all []quota.Usage, err error) {
	for id := uint32(5); id < 10; id++ {
		if limit, known := l[id]; known && id >= from {
			all = append(all, quota.Usage{ID: id, Bytes: 2 << 20, Limit: limit})
		}
	}
	return all, nil
}

// A volume that has no limit is listed so and gets one, with what was skipped; one whose record has
// no size is left, with the reason, and keeps no other from it.
func TestQuotaApply(t *testing.T) {
	dir := hosttest.PoolMount(t, hosttest.Mkfs(t, "xfs", 320))
	t.Cleanup(func() { hosttest.Unmount(t, dir) })
	id := pool.Identity(t, dir)
	var out bytes.Buffer
	kernel := limits{}
	store := volume.New(volume.Options{Name: "fast", Path: dir})
	store.SetQuotas(&volume.ProjectQuotas{Kernel: kernel, First: 5, Last: 9, Begun: &volume.BegunProjects{}})
	l := &limiter{p: &program{stdout: &out, stderr: &out}, pool: config.DefaultPool("fast"), store: store, id: id}
	if err := store.InitMarker(t.Context(), id, []byte("{}\n")); err != nil {
		t.Fatal(err)
	}
	for pv, size := range map[string]int64{"pvc-a": 1 << 30, "pvc-b": 0, "pvc-c": 2 << 30} {
		made := volume.Spec{Record: record.Record{PV: pv, Namespace: "ns", Claim: "claim", Directory: pv, Requested: size}, Mode: 0o700}
		if pv == "pvc-c" {
			made.Quota, made.Project = size, true
		}
		if _, err := store.Create(t.Context(), id, made); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("x", filepath.Join(dir, "pvc-a", "link")); err != nil {
		t.Fatal(err)
	}
	err := l.list(t.Context())
	applied := l.apply(t.Context())
	again := l.apply(t.Context())
	if err != nil || applied == nil || again == nil || !strings.Contains(again.Error(), "pvc-b") {
		t.Errorf("%v, %v, %v", err, applied, again)
	}
	if err := l.list(t.Context()); err != nil {
		t.Error(err)
	}
	found := func() []hostcheck.Finding {
		takes, err := store.Usage(t.Context(), id)
		if err != nil {
			t.Error(err)
		}
		return projects(takes)
	}
	if got := found(); len(got) != 0 {
		t.Errorf("in a pool with volumes that have no limit: %v", got)
	}
	if err := store.Undo(t.Context(), id, "pvc-b"); err != nil {
		t.Fatal(err)
	}
	kernel[8] = quota.Limit{}
	if got := found(); len(got) != 1 || got[0].Reason != plan.ReasonQuotaEscaped || got[0].Severity != hostcheck.Warn {
		t.Errorf("beside a project that no volume has: %v", got)
	}
	want := `VOLUME  CLAIM     SIZE     PROJECT  USED     LIMIT
pvc-a   ns/claim  1.0 GiB  -        -        none
pvc-b   ns/claim  -        -        -        none
pvc-c   ns/claim  2.0 GiB  5        2.0 MiB  2.0 GiB
pvc-a: limited to 1.0 GiB, 1 entries counted; 1 inode of links, FIFOs, sockets and devices skipped
pool fast: 3 volumes, 1 got a limit
pool fast: 3 volumes, 0 got a limit
VOLUME  CLAIM     SIZE     PROJECT  USED     LIMIT
pvc-a   ns/claim  1.0 GiB  9        2.0 MiB  1.0 GiB
pvc-b   ns/claim  -        -        -        none
pvc-c   ns/claim  2.0 GiB  5        2.0 MiB  2.0 GiB
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

// A pool without project quotas is a mistake of the command line; one that asks for them in vain is
// closed.
func TestQuotaCommand(t *testing.T) {
	h := newHost(t, minimal+"require_mount = false\n")
	h.must(os.Mkdir(h.path("pool"), 0o700))
	if got := h.call("quota", "fast"); !strings.Contains(got, `pool fast: quota is "off"`) || !strings.HasSuffix(got, "exit 2\n") {
		t.Error(got)
	}
	h.call("prepare", "fast")
	text, err := os.ReadFile(h.path("config.toml"))
	h.must(err)
	h.must(os.WriteFile(h.path("config.toml"), append(text, "quota = 'project'\n"...), 0o600))
	if got := h.call("quota", "fast", "--apply"); !strings.Contains(got, "QuotaUnavailable") || !strings.Contains(got, `hint: or set quota = "off" in [pool.fast]`) {
		t.Error(got)
	}
}
