package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hungfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// rename has the host's daemon run under another node's name.
func (h *host) rename(node string) {
	h.w.Helper()
	h.edit(`node = "`+h.node+`"`, `node = "`+node+`"`)
	h.node = node
}

// stop ends the daemon and waits for that.
func (h *host) stop() {
	h.w.Helper()
	_, _, err := h.Stop(h.w.Soon())
	h.w.Must(err)
}

// wantClosed waits until the daemon says why the pool is closed, and compares what check, status,
// the Node's event and the log say.
func (h *host) wantClosed(reason, says string) {
	h.w.Helper()
	h.w.Must(h.WaitStatus(h.w.Soon(), says))
	h.call("status").Fails("closed: "+reason, says)
	h.said("reason="+reason, 1)
	h.w.refused(h.w.nodeObject(h.node), reason, says)
}

// forgetOwner makes the marker one of a version that did not write whose the pool is.
func (h *host) forgetOwner() {
	h.w.Helper()
	h.editMarker(func(m map[string]any) {
		delete(m, "node")
		delete(m, "cluster")
		delete(m, "formerNodes")
		delete(m, "scope")
	})
}

func (h *host) editMarker(edit func(map[string]any)) {
	h.w.Helper()
	h.editMarkers(edit, h.ours("pool.json"), h.Path("state", "pools", "fast.json"))
}

func (h *host) editMarkers(edit func(map[string]any), files ...string) {
	h.w.Helper()
	for _, file := range files {
		m := h.marker(file)
		edit(m)
		text := need(json.Marshal(m))(h.w)
		h.w.Must(os.WriteFile(file, text, 0o600))
	}
}

func (h *host) marker(file string) map[string]any {
	h.w.Helper()
	text := need(os.ReadFile(file))(h.w)
	m := map[string]any{}
	h.w.Must(json.Unmarshal(text, &m))
	return m
}

// emptyAndFull are two bound volumes: one that no pod wrote to yet, and one with a file.
func (h *host) emptyAndFull() []string {
	h.w.Helper()
	class := h.w.Class("c", immediate)
	h.w.claim("empty", class, "1Mi")
	h.w.claim("full", class, "1Mi")
	empty, full := h.w.Bound("empty").Name, h.w.Bound("full").Name
	h.w.Must(os.WriteFile(filepath.Join(h.mount, full, "file"), []byte("data"), 0o600))
	return []string{empty, full}
}

// hostWithVolumes is a host whose daemon runs and has the two.
func hostWithVolumes(t *testing.T) (w *environment, h *host, volumes []string) {
	t.Helper()
	w, h = running(t)
	return w, h, h.emptyAndFull()
}

// A daemon under another node's name does nothing to the volumes of its pool, says why it does not,
// and goes on when the name is right again: with a marker that names the node, and with one that
// does not, where the records do.
func TestOtherNodeName(t *testing.T) {
	t.Parallel()
	for name, old := range map[string]bool{"marker": false, "records": true} {
		t.Run(name, func(t *testing.T) {
			w, h, volumes := hostWithVolumes(t)
			right := h.node
			if m := h.marker(h.ours("pool.json")); m["node"] != right || m["cluster"] == "" || m["cluster"] == nil {
				t.Errorf("the marker is %v", m)
			}
			h.stop()
			if old {
				h.forgetOwner()
			}
			other := w.Namespace + "-b"
			w.Must(w.AddNode(w.Ctx, other, nil))
			h.rename(other)
			h.run()
			h.wantClosed("OtherNode", `this node's name is "`+other+`"`)
			h.call("check").Fails("closed: OtherNode", "--from-node")
			h.call("prepare", "fast").Fails("--from-node")
			out := h.call("volumes").Ends(0).Counts("bound (of node "+right+")", len(volumes))
			if !old {
				out.Says(other)
			}
			h.wantTree(pool.Of(volumes...)...)
			h.stop()
			h.rename(right)
			h.run()
			w.Must(h.WaitStatus(w.Soon(), "1 of 1 pool open"))
			h.wantTree(pool.Of(volumes...)...)
			w.Removes("empty", volumes[0])
			h.wantTree(pool.Of(volumes[1])...)
		})
	}
}

// A name that no Node has, such as localhost before the host has its own, is no reason to touch
// anything: a claim that names it is told so, and the pool opens when the Node joins.
func TestNodeThatDoesNotExist(t *testing.T) {
	w := newEnvironment(t)
	h := w.bareHost(hosttest.Mkfs(w, "ext4", 96), "late")
	h.run()
	h.wantClosed("NodeNotFound", `the cluster has no node "`+h.node+`"`)
	early := w.claim("early", w.Class("early", immediate), "1Mi", annotate(provisionOnNode, h.node))
	w.refused(early, "NodeNotFound")
	if m := h.marker(h.ours("pool.json")); m["node"] != nil {
		t.Errorf("the marker took the name of a node that does not exist: %v", m)
	}
	h.joins()
	w.Must(h.WaitStatus(w.Soon(), "1 of 1 pool open"))
	w.Removes("early", w.Bound("early").Name)
	volumes := h.emptyAndFull()
	w.Must(w.nodes().Delete(w.Ctx, h.node, metav1.DeleteOptions{}))
	w.Must(h.WaitStatus(w.Soon(), "the cluster has no node"))
	w.DeleteClaim("full")
	h.joins()
	w.Must(w.WaitVolumeGone(w.Soon(), volumes[1]))
	h.wantTree(pool.Of(volumes[0])...)
}

// A disk that moved to another node, or a node that was renamed, on purpose: the pool is the new
// node's by one word, nothing of its volumes changes, and with their label they are the new node's,
// too.
func TestFromNode(t *testing.T) {
	w, h, volumes := hostWithVolumes(t)
	was := h.node
	h.stop()
	h.rename(w.Namespace + "-b")
	w.Must(w.AddNode(w.Ctx, h.node, map[string]string{corev1.LabelHostname: "host-of-" + was}))
	for _, bad := range [][]string{{"--from-node", h.node}, {"--from-node", "nobody"}} {
		h.call(append([]string{"prepare", "fast"}, bad...)...).Fails()
	}
	for range 2 { // again changes nothing
		h.call("prepare", "fast", "--from-node", was).Ends(0)
	}
	h.run()
	w.Must(h.WaitStatus(w.Soon(), "1 of 1 pool open"))
	h.call("check").Ends(0)
	volumes = append(volumes, w.bound("new", w.Class("new", immediate), "1Mi").Name)
	h.wantTree(pool.Of(volumes...)...)
	for _, pv := range volumes[:2] {
		label := `{"metadata":{"labels":{"hostpath-provisioner/node":"` + h.node + `"}}}`
		w.PatchVolume(pv, types.MergePatchType, label)
	}
	w.Removes("full", volumes[1])
	h.wantTree(pool.Of(volumes[0], volumes[2])...)
}

// Two daemons have the same filesystem mounted, which does not look like one of the network, and
// scope shared was forgotten: the second finds that it is the first one's, at prepare or later.
func TestSharedForgotten(t *testing.T) {
	w, nodes := twoNodes(t)
	for _, n := range nodes {
		n.edit("scope = \"shared\"", "")
	}
	a, b := nodes[0].run(), nodes[1]
	volumes := a.emptyAndFull()
	b.call("prepare", "fast").Fails(a.node)
	b.run()
	b.wantClosed("OtherNode", `this node's name is "`+b.node+`"`)
	a.wantTree(pool.Of(volumes...)...)
	volumes = append(volumes, w.bound("more", w.Class("more", immediate), "1Mi").Name)
	a.wantTree(pool.Of(volumes...)...)
}

// A cluster that is not the pool's: nothing is done, by the marker, and by what the cluster does
// not know where the marker names none; until the operator says that it is meant.
func TestOtherCluster(t *testing.T) {
	t.Parallel()
	for name, old := range map[string]bool{"marker": false, "records": true} {
		t.Run(name, func(t *testing.T) {
			w, h, volumes := hostWithVolumes(t)
			h.stop()
			if old {
				h.forgetOwner()
				h.strange(volumes)
			} else {
				h.editMarker(func(m map[string]any) { m["cluster"] = "another" })
			}
			h.run()
			says := "is a pool of the cluster with the UID another"
			if old {
				says = "neither object nor claim"
			}
			h.wantClosed("OtherCluster", says)
			h.wantTree(pool.Of(volumes...)...)
			if !old {
				h.call("volumes").Ends(0, says).Counts("unknown\n", len(volumes))
				h.call("adopt", "fast").Fails(says)
			}
			h.call("prepare", "fast", "--new-cluster").Ends(0)
			w.Must(h.WaitStatus(w.Soon(), "1 of 1 pool open"))
			if m := h.marker(h.ours("pool.json")); m["cluster"] == "any" || m["cluster"] == "another" || m["node"] != h.node {
				t.Errorf("the marker is %v", m)
			}
		})
	}
}

// The API server of another cluster responds for a while under the address of the pool's own:
// nothing is done, and the pool opens without a restart when its own cluster is back.
func TestOtherClusterForAWhile(t *testing.T) {
	w, h, door := hostBehindDoor(t)
	volumes := h.run().emptyAndFull()
	h.stop()
	const namespace = "/api/v1/namespaces/kube-system"
	door.on(http.MethodGet, namespace, func(out http.ResponseWriter, _ *http.Request) bool {
		out.Header().Set("Content-Type", "application/json")
		_, _ = out.Write([]byte(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"another"}}`))
		return true
	})
	h.run()
	h.wantClosed("OtherCluster", "leads to the cluster with the UID another")
	door.instead(func(http.ResponseWriter, *http.Request) bool { return false })
	w.Must(h.WaitStatus(w.Soon(), "1 of 1 pool open"))
	h.wantTree(pool.Of(volumes...)...)
}

// strange makes the records those of claims that this cluster never had.
func (h *host) strange(volumes []string) {
	h.w.Helper()
	for i, pv := range volumes {
		file := h.ours("volumes/" + pv + ".json")
		text, uid := need(os.ReadFile(file))(h.w), strings.TrimPrefix(pv, "pvc-")
		stranger := string("12"[i]) + uid[1:]
		if stranger == uid {
			stranger = string("ab"[i]) + uid[1:]
		}
		renamed := strings.ReplaceAll(string(text), uid, stranger)
		h.w.Must(os.WriteFile(h.ours("volumes/pvc-"+stranger+".json"), []byte(renamed), 0o600))
		h.w.Must(os.Remove(file))
		h.w.Must(os.Rename(filepath.Join(h.mount, pv), filepath.Join(h.mount, "pvc-"+stranger)))
		volumes[i] = "pvc-" + stranger
	}
}

// A pool whose marker names no owner, with volumes that the cluster knows, learns whose it is without a
// word; one whose daemon may not know the cluster works as before, and says so once.
func TestOwnerIsLearnt(t *testing.T) {
	w, h, volumes := hostWithVolumes(t)
	h.stop()
	h.forgetOwner()
	h.run()
	w.Must(h.WaitStatus(w.Soon(), "1 of 1 pool open"))
	system := getIn(w, w.Client().CoreV1().Namespaces(), "kube-system")
	if m := h.marker(h.ours("pool.json")); m["node"] != h.node || m["cluster"] != string(system.UID) {
		t.Errorf("the marker is %v", m)
	}
	h.wantTree(pool.Of(volumes...)...)
}

// An object of any name and label for a record's claim keeps the volume, though nothing watches it.
func TestObjectOfAnotherName(t *testing.T) {
	w, h, volumes := hostWithVolumes(t)
	h.stop()
	pv := w.Volume(volumes[0])
	again := pv.DeepCopy()
	again.ObjectMeta = metav1.ObjectMeta{Name: "by-hand-" + w.Namespace, Annotations: pv.Annotations}
	again.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	again.Spec.ClaimRef.ResourceVersion = ""
	createIn(w, w.pvs(), again)
	w.Cleanup(func() { _ = w.pvs().Delete(w.Ctx, again.Name, metav1.DeleteOptions{}) })
	w.ForceOff(pv.Name)
	w.DeleteClaim("empty")
	w.Must(w.WaitClaimGone(w.Soon(), w.Namespace, "empty"))
	h.run()
	// The records were compared before.
	volumes = append(volumes, w.bound("later", w.Class("later", immediate), "1Mi").Name)
	h.wantTree(pool.Of(volumes...)...)
}

// The manifests of the version before grant no look at namespaces.
func TestClusterUnknown(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a")
	w.oldRights(h)
	h.run()
	volumes := h.emptyAndFull()
	h.logged().Counts("the cluster cannot be told from others", 1)
	if m := h.marker(h.ours("pool.json")); m["cluster"] != nil || m["node"] != h.node {
		t.Errorf("the marker is %v", m)
	}
	w.Removes("full", volumes[1])
	h.wantTree(pool.Of(volumes[0])...)
}

// oldRights gives the host's daemon an identity with the rights of the version before.
func (w *environment) oldRights(h *host) {
	w.Helper()
	role := getIn(w, w.Client().RbacV1().ClusterRoles(), "hostpath-provisioner:hostpath-provisioner")
	old := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
	for _, rule := range role.Rules {
		if rule.Resources[0] != "namespaces" {
			old.Rules = append(old.Rules, rule)
		}
	}
	createIn(w, w.Client().RbacV1().ClusterRoles(), old)
	file := filepath.Join(hosttest.Dir(w), "old-kubeconfig")
	w.granted(old.Name, old.Name, w.account("old", file))
	h.edit(h.Path("kubeconfig"), file)
}

// A filesystem of the network is refused by its type: by prepare, check and the daemon, until scope
// says that other nodes have it, or exclusive that none does.
func TestNetworkFilesystem(t *testing.T) {
	w, mount := newEnvironment(t), hosttest.MountPoint(t)
	hungfs.MountAs(t, mount, "fuse.sshfs", "root@files:/export")
	h := w.hostAt(mount, "a", "exclusive = true").joins().run()
	h.emptyAndFull()
	volumes, text := h.tree(), h.config()
	h.reload(strings.Replace(text, "exclusive = true", "", 1))
	h.wantClosed("NetworkFilesystem", "(fuse.sshfs, root@files:/export) can be mounted on other nodes, too")
	for _, command := range []string{"prepare", "check"} {
		h.call(command, "fast").Fails("can be mounted on other nodes, too", `scope = "shared"`)
	}
	h.reload(strings.Replace(text, "exclusive = true", `scope = "shared"`, 1))
	w.Must(h.WaitStatus(w.Soon(), "1 of 1 pool open"))
	// And the volumes that were made with the scope before are spoken of.
	h.call("check").Becomes("warning ScopeChanged", "(node: 2)")
	h.call("check").Ends(0)
	h.said("reason=ScopeChanged", 1)
	h.wantTree(volumes...)
}
