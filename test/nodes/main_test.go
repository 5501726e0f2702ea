//go:build nodes

package nodes

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestMain(m *testing.M) {
	if err := inotifyLeft(); err != nil {
		fmt.Fprintln(os.Stderr, "test-nodes:", err)
		os.Exit(1)
	}
	os.Exit(isolate(func() int { return hosttest.Main(m) }))
}

// instances is more inotify instances than a run was seen to have: 11 of the control plane, six of
// each kubelet, one of each containerd and daemon, on three nodes.
const instances = 48

// inotifyLeft returns an error where root has fewer left: a kubelet would end by "too many open
// files", which says nothing of the product. The kernel has 128 for a user by default
// (inotify(7), fs.inotify.max_user_instances), and this package changes no sysctl.
func inotifyLeft() error {
	for n := range instances {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err != nil {
			return fmt.Errorf("%d inotify instances are left, and the run needs %d (%w): "+
				"end other clusters on this machine, or sysctl fs.inotify.max_user_instances=512", n, instances, err)
		}
		defer unix.Close(fd)
	}
	return nil
}
