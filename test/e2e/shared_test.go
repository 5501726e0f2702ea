package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// sharedBy makes nodes that share one ext4 filesystem.
func (w *environment) sharedBy(names []string, extra ...string) []*node {
	w.Helper()
	return w.newNodes(hosttest.PoolMount(w, hosttest.Mkfs(w, "ext4", 96)), names, extra...)
}

// threeNodes share a pool and their daemons run. The class binds at once.
func threeNodes(t *testing.T, extra ...string) (w *environment, nodes []*node, class string) {
	t.Helper()
	w = newEnvironment(t)
	nodes = w.sharedBy([]string{"a", "b", "c"}, extra...)
	runAll(nodes)
	return w, nodes, w.Class("c", immediate)
}

// twoNodes share a pool; their daemons do not run yet.
func twoNodes(t *testing.T) (w *environment, nodes []*node) {
	t.Helper()
	w = newEnvironment(t)
	return w, w.sharedBy([]string{"a", "b"})
}

func mode(m corev1.PersistentVolumeAccessMode) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{m} }
}

// holder waits until the pool's lease has a holder that is fine, and returns it.
func (w *environment) holder(nodes []*node, is func(*node) bool) *node {
	w.Helper()
	var found *node
	leases, name := w.leases(), "fast."+w.Provisioner
	need(cluster.WaitFor(w.Soon(), leases, name, func(l *coordinationv1.Lease) bool {
		for _, n := range nodes {
			if id := l.Spec.HolderIdentity; id != nil && strings.HasPrefix(*id, n.node+"_") && l.Annotations["hostpath-provisioner/speaks"] == "" && is(n) {
				found = n
				return true
			}
		}
		return false
	}))(w)
	return found
}

func anyNode(*node) bool { return true }

func but(out *node) func(*node) bool { return func(n *node) bool { return n != out } }

// A volume of a shared pool is every node's: no affinity, any access mode, made and removed by the
// daemon that holds the lease, whichever node the claim was given to.
func TestShared(t *testing.T) {
	w, nodes, now := threeNodes(t)
	leader := w.holder(nodes, anyNode)
	later := w.Class("w", wait)
	many := w.claim("many", now, "10Mi", mode(corev1.ReadWriteMany))
	w.claim("read", now, "10Mi", mode(corev1.ReadOnlyMany))
	for _, n := range nodes {
		name := "of-" + strings.TrimPrefix(n.node, w.Namespace+"-")
		w.wanted(name, later, "1Mi", n.node)
	}
	w.claim("named", later, "1Mi", annotate(provisionOnNode, nodes[1].node))
	var all []string
	for _, name := range []string{"many", "read", "of-a", "of-b", "of-c", "named"} {
		pv := w.Bound(name)
		all = append(all, pv.Name)
		if pv.Spec.NodeAffinity != nil || pv.Labels["hostpath-provisioner/node"] != "" || pv.Labels["hostpath-provisioner/scope"] != "shared" {
			t.Errorf("%s: affinity %v, labels %v", name, pv.Spec.NodeAffinity, pv.Labels)
		}
	}
	leader.wantTree(pool.Of(all...)...)
	event := w.event(many, "ProvisioningSucceeded")
	if want := "volume pvc-" + string(many.UID) + " is in shared pool fast, for pods on each node that has it"; event.Message != want || event.Source.Host != leader.node {
		t.Errorf("%s said %q", event.Source.Host, event.Message)
	}
	for _, n := range nodes { // the same directory on all of them, as its pods would see it
		n.do("test", "-d", filepath.Join(n.mount, all[0]))
		if n != leader { // which has the lease
			n.logged().Lacks("ProvisioningSucceeded")
		}
	}
	w.DeleteClaim("many", "read", "named")
	for _, i := range []int{0, 1, 5} {
		w.Must(w.WaitVolumeGone(w.Soon(), all[i]))
	}
	leader.wantTree(pool.Of(all[2:5]...)...)
	for _, n := range nodes {
		n.call("status").Becomes("open; leader " + leader.node)
	}
}

// The leader's mount goes: it leaves the lease at once, and another node makes the volume that was
// asked for meanwhile, and removes one that the first had made.
func TestSharedMountLost(t *testing.T) {
	w, nodes, class := threeNodes(t)
	first := w.holder(nodes, anyNode)
	before := w.bound("before", class, "1Mi")
	began := time.Now()
	first.unmount()
	meanwhile := w.bound("meanwhile", class, "1Mi")
	t.Logf("claim to Bound while the leader's mount was lost: %s", time.Since(began).Round(time.Millisecond))
	second := w.holder(nodes, but(first))
	w.Removes("before", before.Name)
	second.wantTree(pool.Of(meanwhile.Name)...)
	// It comes back and takes over again when all others are gone.
	first.remount()
	w.Must(first.WaitStatus(w.Soon(), "1 of 1 pool open"))
	for _, n := range nodes {
		if n != first {
			n.unmount()
		}
	}
	w.holder(nodes, func(n *node) bool { return n == first })
	w.Removes("meanwhile", meanwhile.Name)
	first.wantTree()
}

// The leader's machine dies without a word.
func TestSharedLeaderKilled(t *testing.T) {
	w, nodes, class := threeNodes(t)
	first := w.holder(nodes, anyNode)
	began := time.Now()
	first.Kill()
	pv := w.bound("data", class, "1Mi")
	t.Logf("claim to Bound after the leader was killed: %s", time.Since(began).Round(time.Millisecond))
	w.holder(nodes, but(first)).wantTree(pool.Of(pv.Name)...)
}

// The leader is paused in the middle of its work, another one takes over, and then it wakes. In the
// end each claim that is left has one volume with what was written to it, and nothing else is
// there.
func TestSharedPausedLeader(t *testing.T) {
	w, nodes, class := threeNodes(t)
	want := map[string]*corev1.PersistentVolume{}
	written := func(name string) {
		want[name] = w.Bound(name)
		file := filepath.Join(cluster.PathOf(want[name]), "data")
		w.Must(os.WriteFile(file, []byte(name), 0o600))
	}
	for round := range 3 {
		leader := w.holder(nodes, anyNode)
		old, names := w.burst(round, class, 6), []string(nil)
		w.Bound(old[0])
		for i, name := range old { // in the making, made, or going
			if i%2 == 0 {
				w.DeleteClaim(name)
			} else {
				names = append(names, name)
			}
		}
		w.Must(leader.Signal(syscall.SIGSTOP))
		names = append(names, w.burst(round+10, class, 6)...)
		for _, name := range names {
			written(name) // by another one
		}
		w.holder(nodes, but(leader))
		w.Must(leader.Signal(syscall.SIGCONT))
		after := fmt.Sprintf("after-%d", round)
		w.claim(after, class, "1Mi")
		written(after)
	}
	var all []string
	for name, pv := range want {
		nodes[0].wantData(cluster.PathOf(pv), name)
		all = append(all, pv.Name)
	}
	nodes[0].wantTree(pool.Of(all...)...)
}

// burst creates claims without waiting.
func (w *environment) burst(round int, class string, n int) []string {
	w.Helper()
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("r%d-%d", round, i))
		w.claim(names[i], class, "1Mi")
	}
	return names
}

// No node has the storage: one of them says so, and once. The first that has it again does the
// work.
func TestSharedAllClosed(t *testing.T) {
	w, nodes, class := threeNodes(t)
	before := w.bound("before", class, "1Mi")
	for _, n := range nodes {
		n.unmount()
	}
	claim := w.claim("data", class, "1Mi")
	w.refused(claim, "PoolClosed", "no node can work in it; here ", "is not a mount point")
	w.DeleteClaim("before")
	w.event(before, "PoolClosed")
	said := listIn(w, w.events(), metav1.ListOptions{FieldSelector: "involvedObject.name=data,reason=PoolClosed"})
	if len(said.Items) != 1 {
		t.Errorf("it was said %d times", len(said.Items))
	}
	began := time.Now()
	nodes[2].remount()
	pv := w.Bound("data")
	t.Logf("mount to Bound: %s", time.Since(began).Round(time.Millisecond))
	w.Must(w.WaitVolumeGone(w.Soon(), before.Name))
	nodes[2].wantTree(pool.Of(pv.Name)...)
}

// Another filesystem is mounted on one node: it is fine in itself, and not the one the others work
// in.
func TestSharedOtherStorage(t *testing.T) {
	w, nodes := twoNodes(t)
	right, wrong := nodes[0], nodes[1]
	right.run()
	w.holder(nodes, anyNode)
	wrong.runOnOtherStorage()
	right.unmount()
	w.refused(w.claim("data", w.Class("c", immediate), "1Mi"), "PoolClosed")
	right.remount()
	right.wantTree(pool.Of(w.Bound("data").Name)...)
	wrong.do("sh", "-c", "! ls "+wrong.mount+" | grep pvc-")
}

// runOnOtherStorage mounts another filesystem in the pool's place, prepares it, and runs the
// daemon, which tells that it is not the other nodes'.
func (n *node) runOnOtherStorage() {
	n.w.Helper()
	n.unmount()
	n.do("mount", "-o", "loop", hosttest.Mkfs(n.w, "ext4", 32).File, n.mount)
	n.call("prepare", "fast", "--replace").Ends(0)
	n.run()
	n.w.event(n.w.nodeObject(n.node), "StorageMismatch")
}

// nodeObject is a Node as its events are about it: with its name as UID.
func (w *environment) nodeObject(name string) *corev1.Node {
	return &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
}
