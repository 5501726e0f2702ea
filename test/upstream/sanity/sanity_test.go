// Package sanity runs csi-sanity (kubernetes-csi/csi-test) against the CSI driver: against the
// services Identity and Node as kubelet has them, and against a Controller service that has the
// daemon's reconcilers do what it is called for.
//
// The product has no such service: the objects of Kubernetes are what its daemon is asked by
// (docs/dev/decisions.md). The one here is on the driver's socket in the test alone.
package sanity

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/prober"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/csi/target"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// driver is the product's services, with a controller.
type driver struct{ *csi.Server }

// GetPluginCapabilities tells of the controller, without which the tests call none.
func (driver) GetPluginCapabilities(context.Context, *spec.GetPluginCapabilitiesRequest) (*spec.GetPluginCapabilitiesResponse, error) {
	return &spec.GetPluginCapabilitiesResponse{Capabilities: []*spec.PluginCapability{
		{Type: &spec.PluginCapability_Service_{Service: &spec.PluginCapability_Service{Type: spec.PluginCapability_Service_CONTROLLER_SERVICE}}},
		{Type: &spec.PluginCapability_VolumeExpansion_{VolumeExpansion: &spec.PluginCapability_VolumeExpansion{Type: spec.PluginCapability_VolumeExpansion_ONLINE}}},
	}}, nil
}

// TestSanity runs all cases that the capabilities select, twice where a call can be repeated.
// Nothing is in the pool afterwards.
func TestSanity(t *testing.T) {
	dir := hosttest.Dir(t)
	pool := newPool(t, filepath.Join(dir, "fast"))
	cfg := config.Default()
	cfg.Node, cfg.Pools = node, []config.Pool{pool}
	s := newService(t, cfg, filepath.Join(dir, "state"))
	s.checkRefusals(t)
	s.checkHealth(t)
	root := filepath.Join(dir, "kubelet")
	serve(t, filepath.Join(dir, "csi.sock"), s, driver{&csi.Server{
		Driver: cfg.Provisioner, Version: "sanity", Root: target.Root(root), Log: slog.New(slog.DiscardHandler),
		Pools: csi.NewPools(func() (config.Config, error) { return cfg, nil }, filepath.Join(dir, "state"), csi.Within),
	}})

	c := sanity.NewTestConfig()
	c.Address, c.IdempotentCount = "unix://"+filepath.Join(dir, "csi.sock"), 2
	c.TestVolumeSize, c.TestVolumeExpandSize = 1<<20, 2<<20
	c.CreateTargetDir = func(string) (string, error) {
		at := filepath.Join(root, "pods/u-1/volumes/kubernetes.io~csi/pvc-1")
		return at, os.MkdirAll(at, 0o750)
	}
	c.CheckPath = kindOf
	c.RemoveTargetPath = func(string) error { return os.RemoveAll(filepath.Join(root, "pods/u-1")) }
	c.StagingPath = filepath.Join(dir, "staging")
	sanity.GinkgoTest(&c)
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.ReportAfterSuite("selected", func(r ginkgo.Report) { checkSelected(t, r) })
	ginkgo.RunSpecs(t, "CSI")
	s.checkEmpty(t)
}

// newPool makes a pool on a filesystem that can share files' blocks.
func newPool(t *testing.T, at string) config.Pool {
	t.Helper()
	hosttest.Check(t, os.Mkdir(at, 0o700))
	hosttest.Mkfs(t, "xfs", 320).Mount(t, at)
	hosttest.Check(t, os.Chmod(at, 0o700))
	p := config.DefaultPool("fast")
	p.Path, p.MountPoint, p.Immutable, p.SELinuxType = at, at, config.ImmutableOff, ""
	p.Source, p.Clones, p.Snapshots = plan.SourceCSI, plan.ClonesReflink, plan.SnapshotsLive
	return p
}

// newService prepares the configuration's pool, and begins the work of a daemon in it.
func newService(t *testing.T, cfg config.Config, state string) *service {
	t.Helper()
	p := cfg.Pools[0]
	s := &service{gate: gate.New(p.Name), store: volume.New(volume.Options{Name: p.Name, Path: p.Path}), cluster: newCluster(plan.Self{Provisioner: cfg.Provisioner, Node: cfg.Node})}
	s.pool = plan.Pool{
		Name: p.Name, Path: p.Path, Scope: p.Scope, Source: p.Source, Mode: p.Mode, OnDelete: p.OnDelete, Directory: p.Directory.Expand,
		Quota: p.Quota, Clones: p.Clones, Snapshots: p.Snapshots,
	}
	marker := hosttest.Need(hostcheck.EncodeMarker(hostcheck.NewMarker(p.Name, time.Now())))(t)
	s.id = pool.Identity(t, p.Path)
	hosttest.Check(t, s.store.InitMarker(t.Context(), s.id, marker))
	probe := prober.New(prober.Options{Pool: p, Node: cfg.Node, StateDir: state, Locks: unlocked{}, Store: s.store, Deadline: csi.Within})
	nobody := func() string { return "" }
	s.daemon = controllers.New(controllers.Options{
		Self: s.cluster.self, Identity: node, BoundNode: nobody, Holder: nobody, Gate: s.gate, Log: slog.New(slog.DiscardHandler),
		Pools:   []controllers.PoolParts{{Pool: s.pool, Storage: s.store, Probe: probe, Opened: probe.Opened, Overcommit: p.Overcommit}},
		Listers: s.cluster.listers(), API: s.cluster, Events: s.cluster, Metrics: uncounted{},
		Contents: contents(s.cluster), Snapshots: s.cluster, Tick: time.Hour, Deadline: csi.Within, Workers: 1,
	})
	if !s.daemon.Begin(t.Context()) {
		t.Fatal("the daemon's work does not begin")
	}
	t.Cleanup(s.daemon.End)
	return s
}

// unlocked guards the pool against no other daemon.
type unlocked struct{}

func (unlocked) Guard(*hostcheck.Report) {}

// serve has all services respond on one socket, to one call at a time.
func serve(t *testing.T, socket string, s *service, d driver) {
	t.Helper()
	l := hosttest.Need(net.Listen("unix", socket))(t)
	one := func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, do grpc.UnaryHandler) (any, error) {
		s.calls.Lock()
		defer s.calls.Unlock()
		return do(ctx, r)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(one))
	spec.RegisterIdentityServer(server, d)
	spec.RegisterNodeServer(server, d)
	spec.RegisterControllerServer(server, s)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
}

// kindOf is part of sanity.TestConfig.
func kindOf(path string) (sanity.PathKind, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return sanity.PathIsNotFound, nil
	case err != nil:
		return sanity.PathIsOther, err
	case info.IsDir():
		return sanity.PathIsDir, nil
	}
	return sanity.PathIsOther, nil
}

// checkEmpty reports what the cases left in the pool, and what the pool has promised.
func (s *service) checkEmpty(t *testing.T) {
	t.Helper()
	inventory := hosttest.Need(s.store.List(t.Context(), s.id))(t)
	if left := len(inventory.Volumes) + len(inventory.Archived) + len(inventory.Foreign) + len(inventory.Leftovers) + len(inventory.Damaged); left > 0 {
		t.Errorf("left in the pool: %+v", inventory)
	}
	if _, own, counted := s.daemon.Room(s.pool.Name); own > 0 || !counted {
		t.Errorf("%d bytes are promised, counted: %t", own, counted)
	}
}

// checkRefusals asks for what csi-sanity does not: what the daemon refuses, it refuses with the
// code that the specification has for it.
func (s *service) checkRefusals(t *testing.T) {
	t.Helper()
	small, tooMuch := &spec.CapacityRange{RequiredBytes: 1 << 20}, &spec.CapacityRange{RequiredBytes: 1 << 40}
	made := s.ask(t, "source", small, nil, codes.OK)
	clone := &spec.VolumeContentSource{Type: &spec.VolumeContentSource_Volume{Volume: &spec.VolumeContentSource_VolumeSource{VolumeId: made}}}
	s.ask(t, "too-large", tooMuch, nil, codes.OutOfRange)
	s.ask(t, "no-range", &spec.CapacityRange{RequiredBytes: 2, LimitBytes: 1}, nil, codes.OutOfRange)
	s.ask(t, "source", small, clone, codes.AlreadyExists)
	s.ask(t, "block", small, nil, codes.InvalidArgument, &spec.VolumeCapability{AccessType: &spec.VolumeCapability_Block{
		Block: &spec.VolumeCapability_BlockVolume{},
	}})
	s.ask(t, "many-nodes", small, nil, codes.InvalidArgument, &spec.VolumeCapability{AccessMode: &spec.VolumeCapability_AccessMode{
		Mode: spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
	}})
	_, err := s.ControllerExpandVolume(t.Context(), &spec.ControllerExpandVolumeRequest{VolumeId: made, CapacityRange: tooMuch})
	if status.Code(err) != codes.OutOfRange {
		t.Errorf("expanded by more than there is: %v", err)
	}
	if _, err := s.DeleteVolume(t.Context(), &spec.DeleteVolumeRequest{VolumeId: made}); err != nil {
		t.Error(err)
	}
	s.checkEmpty(t)
}

// ask creates a volume, and returns its handle. An error with another code than this is reported.
func (s *service) ask(t *testing.T, name string, size *spec.CapacityRange, from *spec.VolumeContentSource, code codes.Code, as ...*spec.VolumeCapability) string {
	t.Helper()
	r, err := s.CreateVolume(t.Context(), &spec.CreateVolumeRequest{
		Name: name, CapacityRange: size, VolumeContentSource: from, VolumeCapabilities: append(as, &spec.VolumeCapability{}),
	})
	if status.Code(err) != code {
		t.Errorf("%s: %v, want %s", name, err, code)
	}
	return r.GetVolume().GetVolumeId()
}
