package e2e

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// node is a host with a mount namespace of its own, so that what is mounted or not on one node says
// nothing about the others. All nodes of a test have the same filesystem mounted at the same path,
// as they would one on the network; the test itself sees it there, too.
type node struct {
	*host
	namespace *hosttest.Namespace
}

// newNodes makes nodes that share the filesystem that is mounted at mount. Extra is TOML for the
// pool.
func (w *environment) newNodes(mount string, names []string, extra ...string) []*node {
	w.Helper()
	var all []*node
	for _, name := range names {
		n := &node{namespace: newNamespace(w.T)}
		shared := append([]string{`scope = "shared"`}, extra...)
		n.host = w.hostIn(n.namespace.Enter(), mount, name, shared...).joins()
		all = append(all, n)
	}
	return all
}

// newNamespace is what is mounted now, with its own /run/hostpath-provisioner, as another machine
// has.
func newNamespace(t *testing.T) *hosttest.Namespace {
	t.Helper()
	return hosttest.NewNamespace(t, "mount -t tmpfs node /run/hostpath-provisioner")
}

// do runs a command on the node.
func (n *node) do(args ...string) {
	n.w.Helper()
	n.namespace.Run(args...)
}

// unmount takes the pool's storage away from this node, as soon as no daemon looks into it, and
// remount brings it back.
func (n *node) unmount() { n.w.Helper(); n.w.Unmounts(n.node, n.namespace, n.mount) }

func (n *node) remount() {
	n.w.Helper()
	out := need(exec.Command("findmnt", "--noheadings", "--output", "SOURCE", n.mount).Output())(n.w)
	n.do("mount", strings.TrimSpace(string(out)), n.mount)
}
