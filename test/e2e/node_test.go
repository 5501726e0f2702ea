package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// node is a host with a mount namespace of its own, so that what is mounted or not on one node says
// nothing about the others. All nodes of a test have the same filesystem mounted at the same path, as
// they would one on the network; the test itself sees it there, too.
type node struct {
	*host
	space int // the process that holds the namespace
}

// newNodes makes nodes that share the filesystem that is mounted at mount. Extra is TOML for the pool.
func (w *world) newNodes(mount string, names []string, extra ...string) []*node {
	w.Helper()
	var all []*node
	for _, name := range names {
		n := &node{space: newSpace(w.T), host: &host{w: w, node: w.namespace + "-" + name, mount: mount}}
		dir := hosttest.Dir(w)
		kubeconfig := filepath.Join(dir, "kubeconfig")
		w.must(w.ServiceAccountKubeconfig(w.ctx, "hostpath-provisioner", "hostpath-provisioner", "", kubeconfig))
		config := fmt.Sprintf("provisioner = %q\nnode = %q\nkubeconfig = %q\nmetrics = \"\"\n[pool.fast]\npath = %q\nscope = \"shared\"\n%s\n",
			w.provisioner, n.node, kubeconfig, mount, strings.Join(extra, "\n"))
		var err error
		n.Daemon, err = rig.New(rig.Options{Dir: dir, Config: config, Wrap: n.inside()})
		w.must(err)
		if out, code := n.Call("prepare", "fast"); code != 0 {
			w.Fatalf("prepare on %s: exit code %d\n%s", n.node, code, out)
		}
		w.must(w.AddNode(w.ctx, n.node, map[string]string{corev1.LabelHostname: "host-of-" + n.node}))
		w.Cleanup(func() {
			if w.Failed() {
				w.Logf("the log of the daemon on %s:\n%s", n.node, n.Log())
			}
		})
		all = append(all, n)
	}
	return all
}

// newSpace holds a mount namespace with what is mounted now and its own /run/hostpath-provisioner, as
// another machine has. It ends with the test.
func newSpace(t *testing.T) (pid int) {
	t.Helper()
	hold := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c",
		"mount -t tmpfs node /run/hostpath-provisioner && echo ready && exec sleep infinity")
	hold.Stderr = os.Stderr
	out, err := hold.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	hold.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // Pdeathsig goes with the thread that forked, so this one stays
		defer runtime.UnlockOSThread()
		err := hold.Start()
		started <- err
		if err == nil {
			hold.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hold.Process.Kill() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("a mount namespace: %q, %v", line, err)
	}
	return hold.Process.Pid
}

func (n *node) inside() []string {
	return []string{"nsenter", "--target", strconv.Itoa(n.space), "--mount", "--"}
}

// do runs a command on the node.
func (n *node) do(args ...string) {
	n.w.Helper()
	args = append(n.inside(), args...)
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		n.w.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// unmount takes the pool's storage away from this node, and remount brings it back.
func (n *node) unmount() { n.w.Helper(); n.do("umount", n.mount) }

func (n *node) remount() {
	n.w.Helper()
	out, err := exec.Command("findmnt", "--noheadings", "--output", "SOURCE", n.mount).Output()
	n.w.must(err)
	n.do("mount", strings.TrimSpace(string(out)), n.mount)
}
