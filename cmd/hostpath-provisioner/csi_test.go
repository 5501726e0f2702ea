package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// serveCSI is the program as systemd starts it.
func serveCSI(base string) int {
	p := &program{host: base, stdout: os.Stdout, stderr: os.Stderr, now: time.Now}
	return p.run([]string{"csi-node", "--config", base + "/config.toml", "--state-dir", base + "/state", "--runtime-dir", base + "/run"}, strings.NewReader(""))
}

// A call that comes before the service waits in the sockets, which are the generator's; the service
// ends by SIGTERM, and the sockets stay for the next one.
func TestCSINode(t *testing.T) {
	h := newHost(t, "")
	h.write("config.toml", "node = 'node-a'\n[pool.fast]\npath = '/srv/fast'\nsource = 'csi'\n")
	root := hosttest.Dir(t)
	var files []*os.File
	for _, path := range csi.SocketPaths(root, "hostpath-provisioner") {
		h.must(os.MkdirAll(filepath.Dir(path), 0o750))
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		h.must(err)
		defer l.Close()
		f, err := l.File()
		h.must(err)
		defer f.Close()
		files = append(files, f)
	}
	connect := func(path string) *grpc.ClientConn {
		c, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
		h.must(err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	paths := csi.SocketPaths(root, "hostpath-provisioner")
	node, plugin := spec.NewNodeClient(connect(paths[0])), registration.NewRegistrationClient(connect(paths[1]))
	for range 2 {
		asked := make(chan error)
		go func() {
			info, err := node.NodeGetInfo(t.Context(), &spec.NodeGetInfoRequest{}, grpc.WaitForReady(true))
			if err == nil && info.NodeId != "node-a" {
				t.Error(info)
			}
			asked <- err
		}()
		self, err := os.Executable()
		h.must(err)
		service := exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$0"`, self)
		service.Env = append(os.Environ(), childEnv+"=csi "+h.base, "LISTEN_FDS=2", "LISTEN_FDNAMES=csi:csi")
		service.Stderr, service.ExtraFiles = os.Stderr, files
		h.must(service.Start())
		h.must(<-asked)
		info, err := plugin.GetInfo(t.Context(), &registration.InfoRequest{}, grpc.WaitForReady(true))
		if err != nil || info.Name != "hostpath-provisioner" || info.Endpoint != paths[0] {
			t.Errorf("%v, %v", info, err)
		}
		h.must(service.Process.Signal(os.Interrupt))
		if err := service.Wait(); err != nil {
			t.Error(err)
		}
	}
	for _, path := range paths {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("a socket went with the service: %v", err)
		}
	}
	if got := h.call("csi-node"); !strings.Contains(got, "is started by hostpath-provisioner-csi.socket") || !strings.Contains(got, "exit 2") {
		t.Errorf("by hand: %s", got)
	}
}

// check warns of a pool whose volumes nothing mounts, until both sockets are there.
func TestNotServed(t *testing.T) {
	h := newHost(t, "")
	const text = "CSINotServed: source \"csi\": pods with volumes of this pool do not start on this node: there is no socket /kubelet/plugins"
	h.write("config.toml", "node = 'node-a'\nkubelet_root = '/kubelet'\n[pool.fast]\npath = '/srv/fast'\n")
	if got := h.call("check"); strings.Contains(got, "CSINotServed") {
		t.Errorf("source hostPath: %s", got)
	}
	h.write("config.toml", "node = 'node-a'\nkubelet_root = '/kubelet'\n[pool.fast]\npath = '/srv/fast'\nsource = 'csi'\n")
	for _, path := range csi.SocketPaths("/kubelet", "hostpath-provisioner") {
		if got := h.call("check"); !strings.Contains(got, text) || !strings.Contains(got, "systemctl enable --now hostpath-provisioner-csi.socket") {
			t.Errorf("without %s: %s", path, got)
		}
		h.must(os.MkdirAll(h.path(filepath.Dir(path)), 0o750))
		h.must(os.WriteFile(h.path(path), nil, 0o600))
	}
	if got := h.call("check"); strings.Contains(got, "CSINotServed") {
		t.Errorf("with both: %s", got)
	}
	h.write("config.toml", "node = 'node-a'\nkubelet_root = '/kubelet'\naliases = ['kubevirt.io.hostpath-provisioner']\ncsi_drivers = ['kubevirt.io.hostpath-provisioner']\n[pool.fast]\npath = '/srv/fast'\n")
	const theirs = "CSINotServed: csi_drivers: pods with volumes of kubevirt.io.hostpath-provisioner do not start on this node: there is no socket /kubelet/plugins/kubevirt.io.hostpath-provisioner/csi.sock"
	if got := h.call("check"); !strings.Contains(got, theirs) {
		t.Errorf("in another driver's place: %s", got)
	}
}
