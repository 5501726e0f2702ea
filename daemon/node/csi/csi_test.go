package csi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hungfs"
)

func TestIdentity(t *testing.T) {
	h := newHost(t)
	info, err := h.ident.GetPluginInfo(t.Context(), &spec.GetPluginInfoRequest{})
	if err != nil || info.Name != "hostpath-provisioner" || info.VendorVersion != "test" {
		t.Errorf("%v, %v", info, err)
	}
	if ready, err := h.ident.Probe(t.Context(), &spec.ProbeRequest{}); err != nil || !ready.Ready.GetValue() {
		t.Errorf("%v, %v", ready, err)
	}
	node, err := h.node.NodeGetInfo(t.Context(), &spec.NodeGetInfoRequest{})
	if err != nil || node.NodeId != "node-a" || node.AccessibleTopology != nil || node.MaxVolumesPerNode != 0 {
		t.Errorf("%v, %v", node, err)
	}
	plugin, err := h.plugin.GetInfo(t.Context(), &registration.InfoRequest{})
	if err != nil || plugin.Type != "CSIPlugin" || plugin.Name != "hostpath-provisioner" || plugin.Endpoint != h.at("kubelet/plugins/hostpath-provisioner/csi.sock") || len(plugin.SupportedVersions) != 1 {
		t.Errorf("%v, %v", plugin, err)
	}
	for _, registered := range []bool{true, false} {
		if _, err := h.plugin.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{PluginRegistered: registered}); err != nil {
			t.Error(err)
		}
	}
}

// The volume's life, with a restart of the service and with neither a configuration nor a pool at
// its end.
func TestPublishAndUnpublish(t *testing.T) {
	h := newHost(t)
	for range 2 {
		h.want(h.publish(), codes.OK, "")
	}
	if _, err := os.Stat(h.target("u-1") + "/of-pvc-1"); err != nil {
		t.Error(err)
	}
	h.stop()
	published := make(chan error) // waits in the socket
	go func() { published <- h.publish() }()
	h.serve()
	h.want(<-published, codes.OK, "")
	h.bad = errors.New("line 1")
	h.want(h.publish(), codes.OK, "") // by the last valid one
	h.stop()
	h.serve()
	h.want(h.publish(), codes.Internal, "line 1")
	h.run("umount", h.at("fast"))
	for range 2 {
		h.want(h.unpublish(), codes.OK, "")
	}
	if all := h.mounted(); len(all) != 0 {
		t.Errorf("%q", all)
	}
	h.must(os.RemoveAll(h.at("kubelet/pods/u-1")))
	h.want(h.unpublish(), codes.OK, "")
}

// What is refused, and in which words.
func TestPublishRefuses(t *testing.T) {
	type request = spec.NodePublishVolumeRequest
	h := newHost(t)
	h.create("slow", "pvc-2")
	h.create("fast", "pvc-3")
	store, id := h.store("fast")
	h.create("fast", "pvc-4")
	h.must(store.Trash(t.Context(), id, "pvc-4"))
	of := func(pool, pv string) func(*request) {
		return func(r *request) { other := h.request(pool, pv); r.VolumeId, r.VolumeContext = pv, other.VolumeContext }
	}
	for _, c := range []struct {
		name   string
		change func(*request)
		code   codes.Code
		text   string
	}{
		{"no volume", func(r *request) { r.VolumeId = "" }, codes.InvalidArgument, "no volume_id"},
		{"no target", func(r *request) { r.TargetPath = "" }, codes.InvalidArgument, "no target_path"},
		{"no capability", func(r *request) { r.VolumeCapability = nil }, codes.InvalidArgument, "no volume_capability"},
		{"block", func(r *request) {
			r.VolumeCapability.AccessType = &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}}
		}, codes.InvalidArgument, "Block"},
		{"inline", func(r *request) {
			r.VolumeContext = map[string]string{ephemeral: "true", podUID: "u-1"}
			r.VolumeId = inlineHandle
		}, codes.InvalidArgument, "generic ephemeral volume"},
		{"mount options", func(r *request) { r.VolumeCapability.GetMount().MountFlags = []string{"suid"} }, codes.InvalidArgument, "suid"},
		{"a target elsewhere", func(r *request) { r.TargetPath = "/etc" }, codes.InvalidArgument, "not a target path"},
		{"a target with ..", func(r *request) { r.TargetPath = h.target("u-1") + "/../../../../../../../etc" }, codes.InvalidArgument, "not a target path"},
		{"a pod that is gone", func(r *request) { r.TargetPath = h.target("u-9") }, codes.FailedPrecondition, "the pod's directory is not there"},
		{"no attributes", func(r *request) { r.VolumeContext = nil }, codes.NotFound, `there is no pool ""`},
		{"an unknown pool", of("gone", "pvc-1"), codes.NotFound, `there is no pool "gone"`},
		{"another pool", of("slow", "pvc-1"), codes.NotFound, "not recorded"},
		{"the volume of another pool", of("fast", "pvc-2"), codes.NotFound, "not recorded"},
		{"another volume's path", func(r *request) { r.VolumeContext[plan.AttributePath] = h.at("fast/pvc-3") }, codes.InvalidArgument, "differ"},
		{"a path of the host", func(r *request) { r.VolumeContext[plan.AttributePath] = "/etc" }, codes.InvalidArgument, "differ"},
		{"in the trash", of("fast", "pvc-4"), codes.NotFound, "in the trash"},
		{"a handle with slashes", of("fast", "../slow/pvc-2"), codes.NotFound, "not recorded"},
		{"the trash's own name", of("fast", ".hostpath-provisioner"), codes.NotFound, "not recorded"},
		{"a name in the trash", of("fast", ".hostpath-provisioner/trash/pvc-4"), codes.NotFound, "not recorded"},
		{"the pool itself", of("fast", "."), codes.NotFound, "not recorded"},
		{"a name that is too long", of("fast", strings.Repeat("a", 300)), codes.NotFound, "not recorded"},
		{"a zero", of("fast", "pvc-1\x00"), codes.NotFound, "not recorded"},
	} {
		h.want(h.publish(c.change), c.code, c.text)
		if all := h.mounted(); len(all) != 0 {
			t.Fatalf("%s: %q", c.name, all)
		}
	}
}

// A directory that a tenant's accomplice on the host replaced is no volume.
func TestPublishReplacedDirectory(t *testing.T) {
	h := newHost(t)
	h.must(os.Rename(h.at("fast/pvc-1"), h.at("fast/moved")))
	h.must(os.Symlink("/etc", h.at("fast/pvc-1")))
	h.want(h.publish(), codes.Internal, "not made by this daemon")
	h.must(os.Remove(h.at("fast/pvc-1")))
	h.want(h.publish(), codes.NotFound, "gone")
	h.must(os.Mkdir(h.at("fast/pvc-1"), 0o700))
	h.run("mount", "-t", "tmpfs", "over", h.at("fast/pvc-1"))
	h.want(h.publish(), codes.Internal, "something is mounted on it")
}

// A pool that is closed refuses with its gate's sentence, until it is open; another filesystem in
// its place is not the pool.
func TestPublishFailsClosed(t *testing.T) {
	h := newHost(t)
	h.run("umount", h.at("fast"))
	h.want(h.publish(), codes.FailedPrecondition, `pool "fast" is closed: `+h.at("fast")+" is not a mount point")
	h.must(os.MkdirAll(h.at("fast/pvc-1"), 0o755))
	h.want(h.publish(), codes.FailedPrecondition, "is not a mount point")
	h.mount("fast")
	h.want(h.publish(), codes.FailedPrecondition, "is closed")
	h.prepare("fast")
	h.want(h.publish(), codes.NotFound, "not recorded")
	h.create("fast", "pvc-1")
	h.want(h.publish(), codes.OK, "")
	h.run("umount", h.at("fast")) // the pod keeps what it has
	h.mount("fast")
	h.prepare("fast")
	h.create("fast", "pvc-1")
	h.want(h.publish(), codes.AlreadyExists, "something else is mounted there")
	h.want(h.unpublish(), codes.OK, "")
}

// A pool that is merely full, and takes no new volume, is not told of as unhealthy, and its volumes
// are mounted.
func TestPublishFull(t *testing.T) {
	h := newHost(t)
	h.cfg.Pools[0].ReservePercent, h.cfg.Pools[0].ReserveBytes = 0, 1<<62
	_, report := h.servers[0].Pools.check(t.Context(), h.cfg, h.cfg.Pools[0])
	if f, closed := report.Closed(); !closed || f.Reason != hostcheck.ReasonLowSpace {
		t.Fatalf("the pool is not full: %+v", report)
	}
	h.want(h.publish(), codes.OK, "")
	r, err := h.node.NodeGetStorageHealth(t.Context(), &spec.NodeGetStorageHealthRequest{})
	h.must(err)
	if len(r.BackendHealth) != 0 {
		t.Errorf("%v", r)
	}
	h.want(h.unpublish(), codes.OK, "")
}

// Whether a filesystem keeps volumes to their limits is the daemon's to see: the service may not
// ask (systemd has quotactl_fd(2) refused, and the policy the filesystem's state), and a volume
// that there is has no less of a limit for being mounted.
func TestPublishLeavesLimitsToTheDaemon(t *testing.T) {
	h := newHost(t)
	h.cfg.Pools[0].Quota = plan.QuotaProject // which tmpfs has not
	h.want(h.publish(), codes.OK, "")
	h.want(h.unpublish(), codes.OK, "")
}

// A volume for one pod is mounted for one. kubelet says so with the mode.
func TestSingleWriter(t *testing.T) {
	h := newHost(t)
	alone := func(r *spec.NodePublishVolumeRequest) {
		r.VolumeCapability.AccessMode.Mode = spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	}
	second := func(r *spec.NodePublishVolumeRequest) { r.TargetPath = h.target("u-2") }
	h.want(h.publish(alone), codes.OK, "")
	h.want(h.publish(alone), codes.OK, "")
	h.want(h.publish(alone, second), codes.FailedPrecondition, "mounted for another pod")
	h.want(h.publish(second), codes.OK, "")
	h.want(h.unpublish(), codes.OK, "")
}

// A volume that is to be read only is not written to, whichever of the request says so.
func TestReadOnly(t *testing.T) {
	h := newHost(t)
	for _, change := range []func(*spec.NodePublishVolumeRequest){
		func(r *spec.NodePublishVolumeRequest) { r.Readonly = true },
		func(r *spec.NodePublishVolumeRequest) {
			r.VolumeCapability.AccessMode.Mode = spec.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
		},
	} {
		h.want(h.publish(change), codes.OK, "")
		if err := os.WriteFile(h.target("u-1")+"/new", nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Error(err)
		}
		h.want(h.unpublish(), codes.OK, "")
	}
}

func TestUnpublishRefuses(t *testing.T) {
	h := newHost(t)
	for _, r := range []*spec.NodeUnpublishVolumeRequest{{TargetPath: h.target("u-1")}, {VolumeId: "pvc-1"}, {VolumeId: "pvc-1", TargetPath: "/etc"}, {VolumeId: "pvc-1", TargetPath: h.at("fast/pvc-1")}} {
		_, err := h.node.NodeUnpublishVolume(t.Context(), r)
		h.want(err, codes.InvalidArgument, "")
	}
	if _, err := os.Stat(h.at("fast/pvc-1/of-pvc-1")); err != nil {
		t.Error(err)
	}
}

func TestStats(t *testing.T) {
	h := newHost(t)
	ask := func(id, path string) (*spec.NodeGetVolumeStatsResponse, error) {
		return h.node.NodeGetVolumeStats(t.Context(), &spec.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: path})
	}
	_, err := ask("pvc-1", h.target("u-1"))
	h.want(err, codes.NotFound, "not published")
	for _, path := range []string{"/etc", "relative", h.target("u-9")} {
		_, err = ask("pvc-1", path)
		h.want(err, codes.NotFound, "not published")
	}
	_, err = ask("", h.target("u-1"))
	h.want(err, codes.InvalidArgument, "")
	_, err = ask("pvc-1", "")
	h.want(err, codes.InvalidArgument, "")
	h.want(h.publish(), codes.OK, "")
	got, err := ask("pvc-1", h.target("u-1"))
	var st unix.Statfs_t
	h.must(unix.Statfs(h.at("fast"), &st))
	if err != nil || len(got.Usage) != 2 || got.Usage[0].Total != int64(st.Blocks)*int64(st.Bsize) || got.Usage[1].Total != int64(st.Files) || got.Usage[1].Used < 2 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestHealth(t *testing.T) {
	h := newHost(t)
	ask := func(id string) (*spec.NodeGetVolumeHealthResponse, error) {
		return h.node.NodeGetVolumeHealth(t.Context(), &spec.NodeGetVolumeHealthRequest{VolumeId: id})
	}
	storage := func() []*spec.NodeGetStorageHealthResponse_StorageBackendHealth {
		r, err := h.node.NodeGetStorageHealth(t.Context(), &spec.NodeGetStorageHealthRequest{})
		h.must(err)
		return r.BackendHealth
	}
	_, err := ask("")
	h.want(err, codes.InvalidArgument, "")
	_, err = ask("pvc-9")
	h.want(err, codes.NotFound, "")
	if r, err := ask("pvc-1"); err != nil || len(r.VolumeHealth.HealthStatuses) != 0 || len(storage()) != 0 {
		t.Errorf("%v, %v, %v", r, err, storage())
	}
	h.run("umount", h.at("fast"))
	r, err := ask("pvc-1")
	if err != nil || len(r.VolumeHealth.HealthStatuses) != 1 || r.VolumeHealth.HealthStatuses[0].Status != spec.VolumeHealthErrorType_INACCESSIBLE || r.VolumeHealth.HealthStatuses[0].Reason != "NotMounted" {
		t.Errorf("%v, %v", r, err)
	}
	if s := storage(); len(s) != 1 || s[0].Status != spec.StorageHealthErrorType_STORAGE_UNREACHABLE || !strings.Contains(s[0].Message, "pool fast: ") {
		t.Errorf("%v", s)
	}
	h.create("slow", "pvc-2")
	if r, err := ask("pvc-2"); err != nil || len(r.VolumeHealth.HealthStatuses) != 0 {
		t.Errorf("a volume of an open pool, beside a closed one: %v, %v", r, err)
	}
}

// While a pool hangs, publishing fails in time, and so do statistics, without a thread for each;
// unpublishing works, and so does the other pool.
func TestHangingPool(t *testing.T) {
	h := newHost(t)
	h.stop()
	h.run("umount", h.at("fast"))
	fs := hungfs.Mount(t, h.at("fast"))
	h.prepare("fast")
	h.create("fast", "pvc-1")
	h.within = 2 * time.Second // in which a busy machine publishes, too
	h.serve()
	h.want(h.publish(), codes.OK, "")
	fs.Silence()
	answers := make(chan error)
	for range 4 * mostStuck { // kubelet asks for each volume by itself
		go func() {
			_, err := h.node.NodeGetVolumeStats(t.Context(), &spec.NodeGetVolumeStatsRequest{VolumeId: "pvc-1", VolumePath: h.target("u-1")})
			answers <- err
		}()
	}
	for range 4 * mostStuck {
		h.want(<-answers, codes.DeadlineExceeded, "does not respond")
	}
	if n := h.inStatfs(); n != mostStuck {
		t.Errorf("%d calls wait in the kernel, want %d", n, mostStuck)
	}
	h.want(h.publish(), codes.FailedPrecondition, "is closed")
	h.create("slow", "pvc-2")
	h.want(h.publish(func(r *spec.NodePublishVolumeRequest) {
		other := h.request("slow", "pvc-2")
		r.VolumeId, r.VolumeContext, r.TargetPath = "pvc-2", other.VolumeContext, h.target("u-2")
	}), codes.OK, "")
	h.want(h.unpublish(), codes.OK, "")
	if all := h.mounted(); len(all) != 1 {
		t.Errorf("%q", all)
	}
	fs.Resume()
}

// inStatfs is how many threads of this process, which the service is in, are in fstatfs(2).
func (h *host) inStatfs() (n int) {
	h.Helper()
	all, err := filepath.Glob("/proc/self/task/*/syscall")
	h.must(err)
	for _, one := range all {
		text, err := os.ReadFile(one)
		if err == nil && strings.HasPrefix(string(text), fmt.Sprint(unix.SYS_FSTATFS, " ")) { // else the thread has ended
			n++
		}
	}
	return n
}

// A changed configuration counts at once, and so does what the host remembers of a pool.
func TestChangedConfiguration(t *testing.T) {
	h := newHost(t)
	h.want(h.publish(), codes.OK, "")
	h.want(h.unpublish(), codes.OK, "")
	all := h.cfg.Pools
	h.cfg.Pools = all[1:]
	h.want(h.publish(), codes.NotFound, `there is no pool "fast"`)
	h.cfg.Pools = all
	h.want(h.publish(), codes.OK, "")
	h.want(h.unpublish(), codes.OK, "")
	h.cfg.Pools[0].Filesystem = "xfs"
	h.want(h.publish(), codes.FailedPrecondition, "is closed")
	h.cfg.Pools[0].Filesystem = ""
	h.must(state.Remember(h.at("state"), "fast", hostcheck.NewMarker("fast", time.Now())))
	h.want(h.publish(), codes.FailedPrecondition, "is closed") // it is another filesystem than the one of before
	h.must(os.WriteFile(h.at("state/pools/fast.json"), []byte("{"), 0o600))
	h.want(h.publish(), codes.FailedPrecondition, "what this host remembers of the pool cannot be read")
	h.must(os.Remove(h.at("state/pools/fast.json")))
	h.want(h.publish(), codes.OK, "")
	h.want(h.unpublish(), codes.OK, "")
}
