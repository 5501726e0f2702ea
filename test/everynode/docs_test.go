package everynode

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pages"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// The page's example, word for word but for this machine's paths and names: the configuration on
// three nodes, the objects in a cluster, the nodes labelled as the page says, and the tombstone in
// the end.
func TestPage(t *testing.T) {
	w := newEnvironment(t)
	page := func(language string) string {
		blocks := hosttest.Need(pages.Open(rig.Root()).Take("every-node.md", "Set up", language, 0))(w)
		return blocks[0].Text
	}
	var hosts []*host
	for _, name := range []string{"a", "b", "c"} {
		h := w.host(name, setting{raw: page("toml"), pool: "agents"})
		hosts = append(hosts, h.run())
		w.label(h.node, "storage", "agents")
	}
	w.Must(w.Apply(w.Ctx, []byte(page("yaml"))))
	w.Namespace = metav1.NamespaceDefault // where kubectl apply puts them
	pv := w.Bound("agent-state")
	w.wantVolume(pv)
	w.scheduled("agent", hosts...)
	w.onEach(hosts, pv.Name)
	w.deleteDaemonSet("agent")
	w.endPods("agent")
	w.Removes("agent-state", pv.Name)
	w.onEach(hosts)
	tombstones := metav1.ListOptions{LabelSelector: "hostpath-provisioner/tombstone"}
	leases := hosttest.Need(w.Client().CoordinationV1().Leases("hostpath-provisioner").
		List(w.Ctx, tombstones))(w)
	if !slices.ContainsFunc(leases.Items, func(l coordinationv1.Lease) bool { return l.Name == pv.Name }) {
		t.Errorf("there is no tombstone of %s", pv.Name)
	}
}

// label is kubectl label node.
func (w *environment) label(node, key, value string) {
	w.Helper()
	hosttest.Need(w.Client().CoreV1().Nodes().Patch(w.Ctx, node, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, key, value), metav1.PatchOptions{}))(w)
}

// onThisMachine is the page's configuration with this host's names and paths.
func (h *host) onThisMachine(config string) string {
	return fmt.Sprintf("node = %q\nmetrics = \"\"\n", h.node) +
		strings.NewReplacer("/etc/hostpath-provisioner/kubeconfig", h.kubeconfig, "/srv/agents", h.path).Replace(config)
}
