// Package sanity runs csi-sanity (kubernetes-csi/csi-test) against the CSI driver's services Identity and Node.
//
// The tests make volumes by a Controller service, which the product does not have: the one here makes them by the functions
// that the daemon calls.
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
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/csi/target"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// driver is the product's services, with a controller.
type driver struct {
	*csi.Server
	spec.UnimplementedControllerServer
	store *volume.Pool
	id    mounts.Identity
	path  string
}

// GetPluginCapabilities says that there is a controller, without which the tests make no volume.
func (*driver) GetPluginCapabilities(context.Context, *spec.GetPluginCapabilitiesRequest) (*spec.GetPluginCapabilitiesResponse, error) {
	return &spec.GetPluginCapabilitiesResponse{Capabilities: []*spec.PluginCapability{{Type: &spec.PluginCapability_Service_{
		Service: &spec.PluginCapability_Service{Type: spec.PluginCapability_Service_CONTROLLER_SERVICE},
	}}}}, nil
}

// ControllerGetCapabilities is part of spec.ControllerServer.
func (*driver) ControllerGetCapabilities(context.Context, *spec.ControllerGetCapabilitiesRequest) (*spec.ControllerGetCapabilitiesResponse, error) {
	r := &spec.ControllerGetCapabilitiesResponse{}
	for _, c := range []spec.ControllerServiceCapability_RPC_Type{
		spec.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, spec.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		r.Capabilities = append(r.Capabilities, &spec.ControllerServiceCapability{Type: &spec.ControllerServiceCapability_Rpc{Rpc: &spec.ControllerServiceCapability_RPC{Type: c}}})
	}
	return r, nil
}

// CreateVolume makes a volume as the daemon does, and has it named as its PersistentVolume names it.
func (d *driver) CreateVolume(ctx context.Context, r *spec.CreateVolumeRequest) (*spec.CreateVolumeResponse, error) {
	_, err := d.store.Create(ctx, d.id, volume.Spec{Mode: 0o777, Record: record.Record{
		PV: r.Name, Namespace: "default", Claim: r.Name, ClaimUID: r.Name, Directory: r.Name, Source: plan.SourceCSI,
	}})
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &spec.CreateVolumeResponse{Volume: &spec.Volume{VolumeId: r.Name, VolumeContext: map[string]string{
		plan.AttributePool: "fast", plan.AttributePath: d.path + "/" + r.Name,
	}}}, nil
}

// DeleteVolume removes it.
func (d *driver) DeleteVolume(ctx context.Context, r *spec.DeleteVolumeRequest) (*spec.DeleteVolumeResponse, error) {
	if err := d.store.Undo(ctx, d.id, r.VolumeId); err != nil && !errors.Is(err, volume.ErrNotRecorded) {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &spec.DeleteVolumeResponse{}, nil
}

// TestSanity runs the tests of the services that the product has, twice where a call can be repeated.
func TestSanity(t *testing.T) {
	dir := hosttest.Dir(t)
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	d := &driver{path: filepath.Join(dir, "fast")}
	must(os.Mkdir(d.path, 0o700))
	must(unix.Mount("fast", d.path, "tmpfs", 0, "mode=0700"))
	fd, err := unix.Open(d.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	must(err)
	d.id, err = mounts.IdentityOf(fd)
	must(err)
	must(unix.Close(fd))
	d.store = volume.New(volume.Options{Name: "fast", Path: d.path})
	marker, err := hostcheck.EncodeMarker(hostcheck.NewMarker("fast", time.Now()))
	must(err)
	must(d.store.InitMarker(t.Context(), d.id, marker))
	cfg := config.Default()
	pool := config.DefaultPool("fast")
	pool.Path, pool.MountPoint, pool.Immutable, pool.SELinuxType = d.path, d.path, config.ImmutableOff, ""
	cfg.Node, cfg.Pools = "node-a", []config.Pool{pool}
	root := filepath.Join(dir, "kubelet")
	d.Server = &csi.Server{
		Driver: cfg.Provisioner, Version: "sanity", Root: target.Root(root), Log: slog.New(slog.DiscardHandler),
		Pools: csi.NewPools(func() (config.Config, error) { return cfg, nil }, filepath.Join(dir, "state"), csi.Within),
	}
	socket := filepath.Join(dir, "csi.sock")
	l, err := net.Listen("unix", socket)
	must(err)
	server := grpc.NewServer()
	spec.RegisterIdentityServer(server, d)
	spec.RegisterNodeServer(server, d)
	spec.RegisterControllerServer(server, d)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()

	c := sanity.NewTestConfig()
	c.Address, c.IdempotentCount = "unix://"+socket, 2
	c.CreateTargetDir = func(string) (string, error) {
		at := filepath.Join(root, "pods/u-1/volumes/kubernetes.io~csi/pvc-1")
		return at, os.MkdirAll(at, 0o750)
	}
	c.RemoveTargetPath = func(string) error { return os.RemoveAll(filepath.Join(root, "pods/u-1")) }
	c.StagingPath = filepath.Join(dir, "staging")
	sanity.GinkgoTest(&c)
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite, reporter := ginkgo.GinkgoConfiguration()
	suite.FocusStrings = []string{"Identity Service", "Node Service"}
	ginkgo.RunSpecs(t, "CSI", suite, reporter)
}
