package csi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	pooltest "github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// host is a node with two pools, on filesystems of their own, and the service on real sockets.
type host struct {
	*testing.T
	dir   string // of everything
	cfg   config.Config
	bad   error // of the configuration
	node  spec.NodeClient
	ident spec.IdentityClient

	drivers []string
	// of the driver in whose place the service is, if there is one
	theirs     spec.NodeClient
	theirIdent spec.IdentityClient

	plugin  registration.RegistrationClient
	sockets []*net.UnixListener
	servers []*Server // that run
	stop    func()
	within  time.Duration
}

func newHost(t *testing.T, inPlaceOf ...string) *host {
	t.Helper()
	h := &host{T: t, dir: hosttest.Dir(t), within: 20 * time.Second, drivers: append([]string{"hostpath-provisioner"}, inPlaceOf...)}
	h.cfg = config.Default()
	h.cfg.Node = "node-a"
	h.must(os.MkdirAll(h.at("state"), 0o700))
	h.must(os.MkdirAll(h.at("kubelet/pods/u-1/volumes/kubernetes.io~csi/pvc-1"), 0o750))
	h.must(os.MkdirAll(h.at("kubelet/pods/u-2/volumes/kubernetes.io~csi/pvc-1"), 0o750))
	for _, name := range []string{"fast", "slow"} {
		h.must(os.Mkdir(h.at(name), 0o700))
		p := config.DefaultPool(name)
		p.Path, p.MountPoint, p.Immutable, p.SELinuxType = h.at(name), h.at(name), config.ImmutableOff, ""
		h.cfg.Pools = append(h.cfg.Pools, p)
		h.mount(name)
		h.prepare(name)
	}
	h.create("fast", "pvc-1")
	h.serve()
	return h
}

func (h *host) at(path string) string { return filepath.Join(h.dir, path) }

func (h *host) must(errs ...error) {
	h.Helper()
	if err := errors.Join(errs...); err != nil {
		h.Fatal(err)
	}
}

func (h *host) run(args ...string) {
	h.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		h.Fatalf("%q: %v\n%s", args, err, out)
	}
}

func (h *host) mount(name string) { h.run("mount", "-t", "tmpfs", "-o", "mode=0700", name, h.at(name)) }

func (h *host) store(name string) (*volume.Pool, mounts.Identity) {
	h.Helper()
	return volume.New(volume.Options{Name: name, Path: h.at(name)}), pooltest.Identity(h.T, h.at(name))
}

func (h *host) prepare(name string) {
	h.Helper()
	store, id := h.store(name)
	marker, err := hostcheck.EncodeMarker(hostcheck.NewMarker(name, time.Now()))
	h.must(err)
	h.must(store.InitMarker(h.Context(), id, marker))
}

// create makes a volume with a file in it.
func (h *host) create(name, pv string) {
	h.Helper()
	store, id := h.store(name)
	_, err := store.Create(h.Context(), id, volume.Spec{Mode: 0o777, Record: record.Record{
		PV: pv, Namespace: "default", Claim: "data", ClaimUID: "u-" + pv, Directory: pv, Source: plan.SourceCSI, Requested: 1 << 20,
	}})
	h.must(err)
	h.must(os.WriteFile(h.at(name+"/"+pv+"/of-"+pv), nil, 0o600))
}

// listen makes the sockets of all drivers.
func (h *host) listen() {
	h.Helper()
	for _, driver := range h.drivers {
		for _, path := range SocketPaths(h.at("kubelet"), driver) {
			h.must(os.MkdirAll(filepath.Dir(path), 0o750))
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			h.must(err)
			h.sockets = append(h.sockets, l)
		}
	}
}

// serve starts the service, on the sockets that there are.
func (h *host) serve() {
	h.Helper()
	if h.sockets == nil {
		h.listen()
		connection := func(i int) *grpc.ClientConn {
			c, err := grpc.NewClient("unix://"+h.sockets[i].Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			h.must(err)
			h.Cleanup(func() { c.Close() })
			return c
		}
		h.node, h.ident, h.plugin = spec.NewNodeClient(connection(0)), spec.NewIdentityClient(connection(0)), registration.NewRegistrationClient(connection(1))
		if len(h.drivers) > 1 {
			h.theirs, h.theirIdent = spec.NewNodeClient(connection(2)), spec.NewIdentityClient(connection(2))
		}
	}
	var passed []net.Listener
	for _, socket := range h.sockets { // what the service gets is its own copy
		f, err := socket.File()
		h.must(err)
		l, err := net.FileListener(f)
		h.must(err)
		f.Close()
		passed = append(passed, l)
	}
	servers, err := OnSockets(passed)
	h.must(err)
	pools := NewPools(func() (config.Config, error) { return h.cfg, h.bad }, h.at("state"), h.within)
	for _, s := range servers {
		s.Version, s.Log, s.Pools = "test", slog.New(slog.DiscardHandler), pools
	}
	h.servers = servers
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ServeAll(ctx, servers) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			h.Error(err)
		}
	})
	h.Cleanup(h.stop)
}

func (h *host) target(pod string) string {
	return h.at("kubelet/pods/" + pod + "/volumes/kubernetes.io~csi/pvc-1/mount")
}

// request is what kubelet asks for a volume of a pool.
func (h *host) request(pool, pv string) *spec.NodePublishVolumeRequest {
	return &spec.NodePublishVolumeRequest{
		VolumeId: pv, TargetPath: h.target("u-1"),
		VolumeCapability: &spec.VolumeCapability{
			AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
			AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		},
		VolumeContext: map[string]string{plan.AttributePool: pool, plan.AttributePath: h.at(pool + "/" + pv), "csi.storage.k8s.io/pod.name": "p"},
	}
}

func (h *host) publish(change ...func(*spec.NodePublishVolumeRequest)) error {
	r := h.request("fast", "pvc-1")
	for _, c := range change {
		c(r)
	}
	_, err := h.node.NodePublishVolume(h.Context(), r)
	return err
}

func (h *host) unpublish() error {
	_, err := h.node.NodeUnpublishVolume(h.Context(), &spec.NodeUnpublishVolumeRequest{VolumeId: "pvc-1", TargetPath: h.target("u-1")})
	return err
}

// want is the code and a part of the message of a call's error.
func (h *host) want(err error, code codes.Code, text string) {
	h.Helper()
	if status.Code(err) != code || err != nil && !strings.Contains(err.Error(), text) {
		h.Errorf("%v, want %s, %q", err, code, text)
	}
}

// mounted are the mount points below kubelet's directory.
func (h *host) mounted() (all []string) {
	h.Helper()
	table, err := mounts.Read()
	h.must(err)
	for _, m := range table {
		if strings.HasPrefix(m.Point, h.at("kubelet")+"/") {
			all = append(all, m.Point)
		}
	}
	return all
}

func mkdirs(all ...string) error {
	for _, dir := range all {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
	}
	return nil
}
