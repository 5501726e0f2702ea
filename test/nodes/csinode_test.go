//go:build nodes

package nodes

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
)

// csiNode is the CSI driver's service on a node, and the sockets that systemd would hold for it.
type csiNode struct {
	driver  string
	h       *host
	asked   []string // names of the sockets on which the daemon asks the service for something
	sockets []*os.File
	service *logged
}

// register listens in the node's mount namespace, as systemd does before kubelet looks, and starts
// the service when kubelet has connected.
func (c *csiNode) register(ctx context.Context, w *environment) {
	c.listen(w)
	c.start(w)
	w.must(eventually(ctx, "the driver's registration", func() error { return c.registered(ctx, w) }), "waiting for kubelet")
}

// listen makes the sockets in the order in which the generator lists them.
func (c *csiNode) listen(w *environment) {
	w.Helper()
	plugins := "/var/lib/kubelet/plugins/" + c.driver
	c.listenAt(w, "unix", plugins+"/csi.sock")
	c.listenAt(w, "unix", "/var/lib/kubelet/plugins_registry/"+c.driver+"-reg.sock")
	for _, name := range c.asked {
		c.listenAt(w, "unixgram", plugins+"/"+name)
	}
}

func (c *csiNode) listenAt(w *environment, network, path string) {
	w.Helper()
	socket, err := listenIn(c.h.holder.PID(), network, path)
	w.must(err, "listening in the node")
	c.sockets = append(c.sockets, socket)
}

// registered returns nil once kubelet has the driver.
func (c *csiNode) registered(ctx context.Context, w *environment) error {
	node, err := w.client.StorageV1().CSINodes().Get(ctx, c.h.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(node.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == c.driver && d.NodeID == c.h.name }) {
		return fmt.Errorf("CSINode has %+v", node.Spec.Drivers)
	}
	return nil
}

// listenIn makes a socket in another mount namespace. The thread stays there, and ends with its
// goroutine.
func listenIn(pid int, network, path string) (file *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		ns, openErr := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
		if err = openErr; err != nil {
			return
		}
		defer ns.Close()
		if err = unix.Unshare(unix.CLONE_FS); err != nil {
			return
		}
		if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err == nil {
			file, err = csinode.Listen(network, path)
		}
	}()
	<-done
	return file, err
}

// start starts the service with the sockets, as sd_listen_fds(3) has it.
func (c *csiNode) start(w *environment) {
	w.Helper()
	service := c.h.daemon.Command("csi-node")
	cmd := exec.Command("sh", append([]string{"-c", `LISTEN_PID=$$ exec "$@"`, "sh"}, service.Args...)...)
	names := strings.TrimSuffix(strings.Repeat("csi:", len(c.sockets)), ":")
	cmd.Env = append(service.Env, fmt.Sprintf("LISTEN_FDS=%d", len(c.sockets)), "LISTEN_FDNAMES="+names)
	cmd.ExtraFiles = c.sockets
	var err error
	c.service, err = launch(cmd, c.h.file("csi-node-"+c.driver+".log"))
	w.must(err, "starting the service")
}

// registrations counts how often kubelet told the service that it has the driver.
func (c *csiNode) registrations(w *environment) int {
	w.Helper()
	log, err := os.ReadFile(c.service.log)
	w.must(err, "reading the service's log")
	return strings.Count(string(log), "kubelet has registered the driver "+c.driver)
}

// registeredAgain waits until kubelet has told the service so more often than before.
func (c *csiNode) registeredAgain(ctx context.Context, w *environment, before int) {
	w.Helper()
	w.must(eventually(ctx, "the driver's registration", func() error {
		if c.registrations(w) == before {
			return fmt.Errorf("the service was not told of one")
		}
		return nil
	}), "waiting for kubelet")
}

// stop ends the service as systemd does.
func (c *csiNode) stop(w *environment) {
	w.Helper()
	w.must(c.service.end(syscall.SIGTERM, 20*time.Second), "stopping the service")
}

// unmounted checks that nothing is mounted for a pod.
func (c *csiNode) unmounted(w *environment) {
	w.Helper()
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", c.h.holder.PID()))
	w.must(err, "reading the node's mounts")
	for line := range strings.Lines(string(table)) {
		if strings.Contains(line, "/volumes/kubernetes.io~csi/") {
			w.Errorf("still mounted: %s", line)
		}
	}
}

// kubeletResponds waits until kubelet, after a restart, gives the log of a pod.
func (w *environment) kubeletResponds(ctx context.Context, pod string) {
	w.Helper()
	w.must(eventually(ctx, "kubelet's own server", func() error {
		_, err := w.client.CoreV1().Pods(w.namespace).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(ctx)
		return err
	}), "waiting for kubelet")
}
