package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// promise makes a volume in the pool at disk/pool that is promised so much.
func (h *host) promise(pv string, bytes int64) {
	h.t.Helper()
	pool := config.DefaultPool("fast")
	pool.Path, pool.MountPoint = h.path("disk/pool"), h.path("disk")
	store := volume.New(volume.Options{Name: "fast", Path: pool.Path})
	report := hostcheck.NewProber((&program{}).expect(pool, "")).Probe(h.t.Context())
	_, err := store.Create(h.t.Context(), report.Identity, volume.Spec{
		Record: record.Record{PV: pv, Namespace: "shop", Claim: "data", ClaimUID: "u-" + pv,
			Directory: pv, Node: "node-a", Requested: bytes}, Mode: 0o777,
	})
	h.must(err)
}

// free is what check --json has for a pool.
func (h *host) free(pool string) int64 {
	h.t.Helper()
	var stdout strings.Builder
	p := &program{host: h.base, stdout: &stdout, stderr: &strings.Builder{}}
	p.run(append([]string{"check", pool, "--json"}, h.flags()...), strings.NewReader(""))
	var got struct{ Pools []struct{ Free int64 } }
	h.must(json.Unmarshal([]byte(stdout.String()), &got))
	return got.Pools[0].Free
}

// A pool whose space is all promised is full, as the daemon says, though nothing is written to it;
// what other pools on its filesystem promised counts, also for a check of the one pool.
func TestAllIsPromised(t *testing.T) {
	h := newHost(t, "node = 'node-a'\n"+
		"[pool.fast]\npath = 'BASE/disk/pool'\nmount_point = 'BASE/disk'\n"+
		"[pool.other]\npath = 'BASE/disk/other'\nmount_point = 'BASE/disk'\novercommit = 2.0\n")
	h.call("prepare", "fast")
	hosttest.Mkfs(t, "ext4", 64).Mount(t, h.path("disk"))
	defer func() {
		hosttest.Unmount(t, h.path("disk"))
		hosttest.SetImmutable(t, h.path("disk"), false)
	}()
	for _, pool := range []string{"fast", "other"} {
		h.call("prepare", pool)
	}
	s := &story{h: h}
	if s.call("check"); !strings.Contains(s.b.String(), "exit 0\n") {
		t.Fatal(s.b.String())
	}
	all := h.free("fast")
	h.promise("pvc-a", all-1<<20)
	got := h.call("check", "fast")
	if !strings.Contains(got, "open") || !strings.HasSuffix(got, "exit 0\n") {
		t.Errorf("with 1 MiB left: %s", got)
	}
	s.says("all is promised")
	h.promise("pvc-b", 1<<20-11<<10)
	s.call("check", "fast")
	s.call("check", "fast", "--json")
	if got := h.free("other"); got < all-1<<20 || got > all {
		t.Errorf("of the other pool %d are free, of %d", got, all)
	}
	s.call("check", "other")
	golden(t, "promised", s.b.String())
}
