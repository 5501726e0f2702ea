package nodes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// pluginDirs are where distributions have the CNI plugins: Debian, Fedora, others.
var pluginDirs = []string{"/usr/lib/cni", "/usr/libexec/cni", "/opt/cni/bin"}

// node is a machine with a container runtime and a kubelet.
type node struct {
	*machine
	number     int    // from 1
	dir        string // logs and configuration, the same path inside and outside
	address    string
	cgroup     string
	containerd *logged
	kubelet    *logged
}

// newNode makes the machine, with programs (a name, a file) in the node's directory; nothing runs
// on it yet.
func newNode(number int, name, dir string, programs map[string]string) (*node, error) {
	n := &node{
		number: number, dir: dir,
		address: fmt.Sprintf("10.99.0.%d", number), cgroup: cgroupName(os.Getenv(runEnv), name),
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for program, from := range programs {
		if err := bindFile(from, n.file(program)); err != nil {
			return nil, err
		}
	}
	if err := makeCgroup(n.cgroup); err != nil {
		return nil, fmt.Errorf("cgroup of %s: %w", name, err)
	}
	var err error
	if n.machine, err = newMachine(name, dir); err != nil {
		return nil, err
	}
	// A kubelet takes no address of 127/8 for its node.
	_, err = n.call("ip", "address", "add", n.address+"/32", "dev", "lo")
	return n, err
}

// bindFile gives a file of the machine a second path: the repository may lie below a directory that
// nodes have their own of. A machine made later has it too, one made before does not.
func bindFile(from, to string) error {
	if err := os.WriteFile(to, nil, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount(from, to, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", from, err)
	}
	return nil
}

// configure writes the configuration of containerd, CNI and kubelet.
func (n *node) configure(ctx context.Context, c *cluster.Cluster) error {
	plugins, err := findPlugins()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(n.path("/var/lib/cni/net.d"), 0o755); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(n.file("containerd.toml"), []byte(containerdConfig(plugins)), 0o644),
		os.WriteFile(n.path("/var/lib/cni/net.d/nodes.conflist"), []byte(cniConfig(n.number)), 0o644),
		os.WriteFile(n.file("kubelet.yaml"), []byte(kubeletConfig(n.address, n.cgroup, filepath.Join(c.Dir(), "pki", "ca.crt"))), 0o644),
		c.NodeKubeconfig(ctx, n.name, n.file("kubelet.kubeconfig")),
	)
}

func findPlugins() (string, error) {
	for _, dir := range pluginDirs {
		if _, err := os.Stat(filepath.Join(dir, "ptp")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no CNI plugin ptp in %s", strings.Join(pluginDirs, ", "))
}

// file is a path in the node's directory.
func (n *node) file(name string) string { return filepath.Join(n.dir, name) }

// startContainerd returns when its socket responds.
func (n *node) startContainerd(ctx context.Context) (err error) {
	n.containerd, err = launch(n.command("containerd", "--config", n.file("containerd.toml")), n.file("containerd.log"))
	if err != nil {
		return err
	}
	err = eventually(ctx, "containerd's socket", func() error {
		select {
		case <-n.containerd.Exited():
			return fmt.Errorf("containerd ended; its log ends with\n%s", n.containerd.tail(10))
		default:
		}
		c, err := net.Dial("unix", n.path("/run/containerd/containerd.sock"))
		if err == nil {
			err = c.Close()
		}
		return err
	})
	return err
}

// importImage gives the node's runtime the image in the archive.
func (n *node) importImage(archive string) error {
	_, err := n.call("ctr", "--namespace=k8s.io", "images", "import", archive)
	return err
}

// startKubelet does not wait. The node's name is the machine's host name, as usual.
func (n *node) startKubelet() (err error) {
	n.kubelet, err = launch(n.command(n.file("kubelet"), "--config="+n.file("kubelet.yaml"),
		"--kubeconfig="+n.file("kubelet.kubeconfig"), "--node-ip="+n.address, "--v=2"), n.file("kubelet.log"))
	return err
}

// waitReady waits until the node is Ready and takes pods.
func (n *node) waitReady(ctx context.Context, c *cluster.Cluster) error {
	_, err := cluster.WaitFor(ctx, c.Client().CoreV1().Nodes(), n.name, func(o *corev1.Node) bool {
		return nodeReady(o) && len(o.Spec.Taints) == 0
	})
	if err != nil {
		err = fmt.Errorf("%w\nkubelet's log ends with\n%s", err, n.kubelet.tail(20))
	}
	return err
}

func nodeReady(o *corev1.Node) bool {
	return slices.ContainsFunc(o.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// stop ends kubelet, then containerd. Containers go on, as they do when these are upgraded.
func (n *node) stop(s syscall.Signal) error {
	var errs []error
	for _, p := range []*logged{n.kubelet, n.containerd} {
		if p != nil {
			errs = append(errs, p.end(s, 30*time.Second))
		}
	}
	return errors.Join(errs...)
}

// die ends everything that runs on the machine, also in its pods, as if it had been switched off.
// Its mounts go with it.
func (n *node) die(ctx context.Context) error {
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", n.holder.PID()))
	if err != nil {
		return err
	}
	return eventually(ctx, "the end of "+n.name, func() error {
		all, err := filepath.Glob("/proc/[0-9]*")
		left := 0
		for _, process := range all {
			mounts, _ := os.Readlink(process + "/ns/mnt")
			cgroups, _ := os.ReadFile(process + "/cgroup")
			pid, _ := strconv.Atoi(filepath.Base(process))
			// The directory of process 1 may be a machine's: see beFirst.
			if pid > 1 && (mounts == own || strings.Contains(string(cgroups), "/"+n.cgroup)) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				left++
			}
		}
		if left > 0 && err == nil {
			err = fmt.Errorf("%d processes are left", left)
		}
		return err
	})
}

// eventually asks again and again until there is no error, for what nothing tells of.
func eventually(ctx context.Context, what string, ask func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w; at last: %w", what, ctx.Err(), err)
		case <-tick.C:
		}
	}
}
