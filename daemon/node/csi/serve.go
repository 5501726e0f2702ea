package csi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/csi/target"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/inline"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/keylock"
)

// Server serves the driver on a node.
type Server struct {
	spec.UnimplementedIdentityServer
	spec.UnimplementedNodeServer

	Driver  string // its name, by which volumes' objects name it
	Version string // of the program
	Root    target.Root
	Pools   *Pools
	Log     *slog.Logger
	// Inline has the daemon make inline volumes; nil where no pool has them.
	Inline *inline.Service
	ending handles // inline volumes of whose end the daemon was told, and has not said that it is done

	sockets []net.Listener
	turns   keylock.Locks // of volumes: a second target of one is compared with the mounts there are
	targets keylock.Locks
}

// ServeAll has each of OnSockets's servers respond on its sockets, and serves what else there is,
// until ctx ends or one of them fails.
func ServeAll(ctx context.Context, servers []*Server, others ...func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for _, s := range servers {
		others = append(others, func(ctx context.Context) error { return s.Serve(ctx, s.sockets[0], s.sockets[1]) })
	}
	for _, serve := range others {
		all.Go(func() {
			if err := serve(ctx); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, ctx.Err()) {
		return err
	}
	return nil
}

// ending is how long calls under way have when the service is stopped. kubelet repeats what was not
// done.
const ending = 5 * time.Second

// largest message that is read, in bytes: attributes of a volume have 4 KiB each at most.
const largest = 256 << 10

// Serve responds on csi to kubelet's volume manager, and on registrar, which may be nil, to its
// search for plugins, until ctx ends. Connections that come afterwards wait in the sockets, which
// the service manager holds.
func (s *Server) Serve(ctx context.Context, csi, registrar net.Listener) error {
	driver := grpc.NewServer(grpc.UnaryInterceptor(s.logged), grpc.MaxRecvMsgSize(largest))
	spec.RegisterIdentityServer(driver, s)
	spec.RegisterNodeServer(driver, s)
	servers, ended := []*grpc.Server{driver}, make(chan error, 2)
	go func() { ended <- driver.Serve(csi) }()
	if registrar != nil {
		server := grpc.NewServer(grpc.MaxRecvMsgSize(largest))
		registration.RegisterRegistrationServer(server, &plugin{Server: s, endpoint: csi.Addr().String()})
		servers = append(servers, server)
		go func() { ended <- server.Serve(registrar) }()
	}
	select {
	case err := <-ended:
		stop(servers)
		return err
	case <-ctx.Done():
		stop(servers)
		return nil
	}
}

// stop lets calls under way end, for a while.
func stop(servers []*grpc.Server) {
	late := time.AfterFunc(ending, func() {
		for _, s := range servers {
			s.Stop()
		}
	})
	defer late.Stop()
	for _, s := range servers {
		s.GracefulStop()
	}
}

// logged writes what was refused to the log; kubelet writes the same on the pod.
func (s *Server) logged(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	response, err := handle(ctx, request)
	if err != nil {
		volume := ""
		if of, ok := request.(interface{ GetVolumeId() string }); ok {
			volume = of.GetVolumeId()
		}
		s.Log.Warn(info.FullMethod+": "+status.Convert(err).Message(), "volume", volume)
	}
	return response, err
}

// plugin tells kubelet of the driver, on a socket of its own (pkg/kubelet/pluginmanager).
type plugin struct {
	registration.UnimplementedRegistrationServer
	*Server
	endpoint string
}

// GetInfo is kubelet's question who listens here, for which it waits a second.
func (r *plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.Driver, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus is what kubelet made of it. It tries again by itself.
func (r *plugin) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if s.PluginRegistered {
		r.Log.Info("kubelet has registered the driver " + r.Driver)
	} else {
		r.Log.Warn("kubelet did not register the driver " + r.Driver + ": " + s.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// Below kubelet's root directory (pkg/kubelet/config: DefaultKubeletPluginsDirName,
// DefaultKubeletPluginsRegistrationDirName).
const (
	plugins    = "plugins"
	registry   = "plugins_registry"
	socket     = "csi.sock"
	registered = "-reg.sock"
)

// SocketPaths are the sockets of a driver below kubelet's root directory: the driver's own, and the
// one that kubelet finds it by.
func SocketPaths(root, driver string) []string {
	return []string{path.Join(root, plugins, driver, socket), path.Join(root, registry, driver+registered)}
}

// OnSockets returns a Server for each driver whose sockets the service manager passed, in the order
// of SocketPaths: which driver it is, and where kubelet's directory is, is in their paths. So what
// is served is what systemd holds, whatever the configuration says by now.
func OnSockets(passed []net.Listener) (servers []*Server, err error) {
	if len(passed) == 0 || len(passed)%2 != 0 {
		return nil, fmt.Errorf("%d sockets were passed, want that of each driver and that of its registration", len(passed))
	}
	for of := range slices.Chunk(passed, 2) {
		s, err := onSockets(of)
		if err != nil {
			return nil, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}

func onSockets(passed []net.Listener) (*Server, error) {
	at := passed[0].Addr().String()
	root, driver := path.Dir(path.Dir(path.Dir(at))), path.Base(path.Dir(at))
	want := SocketPaths(root, driver)
	if got := passed[1].Addr().String(); !strings.HasPrefix(at, "/") || at != want[0] || got != want[1] {
		return nil, fmt.Errorf("sockets %q and %q are not those of a CSI driver below kubelet's directory", at, got)
	}
	return &Server{Driver: driver, Root: target.Root(root), sockets: passed}, nil
}

// GetPluginInfo is part of spec.IdentityServer.
func (s *Server) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: s.Driver, VendorVersion: s.Version}, nil
}

// GetPluginCapabilities is part of spec.IdentityServer. There is no controller service: the daemon
// makes volumes. Volumes carry the node's own affinity, so the driver has no topology; those of
// kubevirt's driver have the driver's.
func (s *Server) GetPluginCapabilities(context.Context, *spec.GetPluginCapabilitiesRequest) (*spec.GetPluginCapabilitiesResponse, error) {
	r := &spec.GetPluginCapabilitiesResponse{}
	if s.Driver == plan.KubevirtCSI {
		r.Capabilities = append(r.Capabilities, &spec.PluginCapability{Type: &spec.PluginCapability_Service_{Service: &spec.PluginCapability_Service{
			Type: spec.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS,
		}}})
	}
	return r, nil
}

// Probe is part of spec.IdentityServer. A closed pool is told of when a volume is published.
func (s *Server) Probe(context.Context, *spec.ProbeRequest) (*spec.ProbeResponse, error) {
	return &spec.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}
