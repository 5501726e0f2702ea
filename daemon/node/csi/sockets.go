package csi

import (
	"fmt"
	"net"
	"path"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/csi/target"
)

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
