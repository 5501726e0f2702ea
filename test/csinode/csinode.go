// Package csinode runs the CSI node service of the daemon's binary as systemd does, on sockets that
// stay while it restarts, and calls it as kubelet does, for pods whose directories it makes below a
// directory of kubelet's.
//
// It knows no cluster, and it asserts nothing.
package csinode

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/inline"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/pause"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

// Options say which service to run.
type Options struct {
	Root    string                               // kubelet's directory, which is made
	Within  string                               // a root directory that all paths are beneath; "" for this one's
	Driver  string                               // the provisioner of the configuration
	Command func(subcommand ...string) *exec.Cmd // a call of the binary (rig.Daemon.Command)
	Log     string                               // file to which the service's log is appended
	Pauses  bool                                 // it is asked to pause pods, too
	Inline  bool                                 // it has the daemon make inline volumes
}

// Service is one process at a time, and the connection to it.
type Service struct {
	Options
	sockets []*os.File
	conn    *grpc.ClientConn
	node    spec.NodeClient
	child   *process.Child
}

// New makes the sockets; nothing runs yet. Calls wait in them until Start.
func New(o Options) (*Service, error) {
	sockets := []*os.File{}
	for _, path := range o.paths() {
		file, err := Listen("unix", path)
		if err != nil {
			return nil, err
		}
		sockets = append(sockets, file)
	}
	s, err := o.Connect()
	if err != nil {
		return nil, err
	}
	s.sockets = sockets
	if err := s.listenToDaemon(); err != nil {
		return nil, err
	}
	return s, os.MkdirAll(filepath.Join(o.Root, "pods"), 0o750)
}

// Listen makes a socket, unix or unixgram, whose file stays when it is closed.
func Listen(network, path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	at := &net.UnixAddr{Name: path, Net: network}
	if network == "unixgram" {
		conn, err := net.ListenUnixgram(network, at)
		if err != nil {
			return nil, err
		}
		defer conn.Close() // which leaves the file
		return conn.File()
	}
	l, err := net.ListenUnix(network, at)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	return l.File()
}

// Connect returns a service that another program runs. It can be called and closed, and neither
// started nor ended.
func Connect(root, driver string) (*Service, error) {
	return Options{Root: root, Driver: driver}.Connect()
}

// Connect is Connect to the service of these options.
func (o Options) Connect() (*Service, error) {
	conn, err := dial(o.paths()[0])
	if err != nil {
		return nil, err
	}
	return &Service{Options: o, conn: conn, node: spec.NewNodeClient(conn)}, nil
}

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// paths are where kubelet looks for a driver: its own socket, and that of its registration.
func (o Options) paths() []string {
	return []string{
		filepath.Join(o.Within, o.Root, "plugins", o.Driver, "csi.sock"),
		filepath.Join(o.Within, o.Root, "plugins_registry", o.Driver+"-reg.sock"),
	}
}

// Registered asks on the other socket, as kubelet does, which driver it is and where it listens.
func (s *Service) Registered(ctx context.Context) (name, endpoint string, err error) {
	conn, err := dial(s.paths()[1])
	if err != nil {
		return "", "", err
	}
	defer conn.Close()
	info, err := registration.NewRegistrationClient(conn).GetInfo(ctx, &registration.InfoRequest{})
	return info.GetName(), info.GetEndpoint(), err
}

// Info asks the service for its node.
func (s *Service) Info(ctx context.Context) (*spec.NodeGetInfoResponse, error) {
	return s.node.NodeGetInfo(ctx, &spec.NodeGetInfoRequest{})
}

// listenToDaemon makes the sockets on which a daemon asks for something.
func (s *Service) listenToDaemon() error {
	for path, wanted := range map[string]bool{pause.SocketPath(s.Root, s.Driver): s.Pauses, inline.SocketPath(s.Root, s.Driver): s.Inline} {
		if !wanted {
			continue
		}
		file, err := Listen("unixgram", path)
		if err != nil {
			return err
		}
		s.sockets = append(s.sockets, file)
	}
	return nil
}

// Start starts the service. It returns at once: calls wait in the socket.
func (s *Service) Start() error {
	cmd := s.Command("csi-node")
	// LISTEN_PID is the process's own, which the shell has and keeps (sd_listen_fds(3)).
	cmd.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`}, cmd.Args...)
	cmd.Path = "/bin/sh"
	cmd.Env = append(cmd.Env, fmt.Sprintf("LISTEN_FDS=%d", len(s.sockets)), "LISTEN_FDNAMES="+strings.TrimSuffix(strings.Repeat("csi:", len(s.sockets)), ":"))
	cmd.ExtraFiles = s.sockets
	var err error
	s.child, err = process.StartLogged(cmd, s.Log)
	return err
}

// PID is the process's number.
func (s *Service) PID() int { return s.child.PID() }

// Exited is closed when the process has ended.
func (s *Service) Exited() <-chan struct{} { return s.child.Exited() }

// Kill ends the process, if there is one.
func (s *Service) Kill() error {
	if s.child == nil || !s.child.Running() {
		return nil
	}
	return s.child.Kill()
}

// Stop ends the process as systemd does.
func (s *Service) Stop(ctx context.Context) error { return s.child.End(ctx, syscall.SIGTERM) }

// Close kills the process, and closes the sockets.
func (s *Service) Close() error {
	err := s.Kill()
	s.conn.Close()
	for _, socket := range s.sockets {
		socket.Close()
	}
	return err
}

// Volume is one as its object says.
type Volume struct {
	PV         string
	Attributes map[string]string
	ReadOnly   bool // for the pod
	// Name is the volume's in its pod, where that is not PV: of an inline volume, whose PV is its
	// handle.
	Name string
}

// Of returns a volume of our own driver.
func Of(pv, pool, path string) Volume {
	return Volume{PV: pv, Attributes: map[string]string{"pool": pool, "path": path}}
}

// Inline returns a volume that is written in a pod of this UID, with kubelet's handle for it
// (pkg/volume/csi, makeVolumeHandle).
func Inline(uid, name string, attributes map[string]string) Volume {
	all := map[string]string{
		"csi.storage.k8s.io/ephemeral": "true", "csi.storage.k8s.io/pod.uid": uid,
		"csi.storage.k8s.io/pod.name": "pod", "csi.storage.k8s.io/pod.namespace": "default",
	}
	maps.Copy(all, attributes)
	return Volume{PV: fmt.Sprintf("csi-%x", sha256.Sum256([]byte(uid+name))), Name: name, Attributes: all}
}

// Target is where a pod has a volume.
func (o Options) Target(pod, pv string) string {
	return filepath.Join(o.Root, "pods", pod, "volumes/kubernetes.io~csi", pv, "mount")
}

// Publish makes the pod's directory and has the volume mounted for it. It waits for the service
// until ctx ends; the error is the service's own, or that the connection broke.
func (s *Service) Publish(ctx context.Context, pod string, v Volume) error {
	target := s.Target(pod, cmp.Or(v.Name, v.PV))
	if err := os.MkdirAll(filepath.Dir(filepath.Join(s.Within, target)), 0o750); err != nil {
		return err
	}
	_, err := s.node.NodePublishVolume(ctx, &spec.NodePublishVolumeRequest{
		VolumeId: v.PV, TargetPath: target, Readonly: v.ReadOnly, VolumeContext: v.Attributes,
		VolumeCapability: &spec.VolumeCapability{
			AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
			AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		},
	}, grpc.WaitForReady(true))
	return err
}

// Unpublish has the volume unmounted. The pod's directory stays, as long as kubelet has the pod.
func (s *Service) Unpublish(ctx context.Context, pod, pv string) error {
	return s.UnpublishInline(ctx, pod, Volume{PV: pv})
}

// UnpublishInline is Unpublish of any volume, also an inline one.
func (s *Service) UnpublishInline(ctx context.Context, pod string, v Volume) error {
	_, err := s.node.NodeUnpublishVolume(ctx, &spec.NodeUnpublishVolumeRequest{VolumeId: v.PV, TargetPath: s.Target(pod, cmp.Or(v.Name, v.PV))}, grpc.WaitForReady(true))
	return err
}

// Stats asks what kubelet asks every minute.
func (s *Service) Stats(ctx context.Context, pod, pv string) error {
	_, err := s.node.NodeGetVolumeStats(ctx, &spec.NodeGetVolumeStatsRequest{VolumeId: pv, VolumePath: s.Target(pod, pv)}, grpc.WaitForReady(true))
	return err
}

// Mounted are the mounts of pods, in the order of the mount table.
func (s *Service) Mounted() ([]mounts.Mount, error) {
	table, err := mounts.Read()
	return slices.DeleteFunc(table, func(m mounts.Mount) bool { return !strings.HasPrefix(m.Point, s.Root+"/pods/") }), err
}

// Left are the targets that are there, mounted or not: each is the service's to remove.
func (s *Service) Left() ([]string, error) {
	all, err := filepath.Glob(s.Target("*", "*"))
	if err != nil {
		return nil, fmt.Errorf("looking for targets: %w", err)
	}
	return all, nil
}

// MakePool makes a pool with one volume at a mount point, as the daemon does, for programs that
// have none.
func MakePool(ctx context.Context, name, path, pv string, mode fs.FileMode) error {
	id, err := pool.IdentityOf(path)
	if err != nil {
		return err
	}
	p := volume.New(volume.Options{Name: name, Path: path})
	marker, err := hostcheck.EncodeMarker(hostcheck.NewMarker(name, time.Now()))
	if err != nil {
		return err
	}
	if err := p.InitMarker(ctx, id, marker); err != nil {
		return err
	}
	_, err = p.Create(ctx, id, volume.Spec{Mode: mode, Record: record.Record{
		PV: pv, Directory: pv, ClaimUID: pv, Namespace: name, Claim: pv, Source: plan.SourceCSI, Requested: 1 << 20,
	}})
	return err
}
