package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// Two nodes have each other's name, or each other's disk: both pools are closed, nothing is made,
// and with each other's name typed the volumes follow their disks. What is on them is not mixed.
func TestNodesSwapped(t *testing.T) {
	w := newEnvironment(t)
	class := w.Class("c", immediate)
	a, b := w.newHost("a").quiet().run(), w.newHost("b").quiet().run()
	a.made("of-a", class)
	b.made("of-b", class)
	going := a.made("going", class)
	a.unplugs()
	b.unplugs()
	w.DeleteClaim("going")
	a.plugs(b.image).run()
	b.plugs(a.image).run()
	for _, h := range []*host{a, b} {
		h.call("status").Fails("closed: OtherNode")
	}
	for h, former := range map[*host]*host{a: b, b: a} {
		args := []string{"import", "fast", "--from-node", former.node}
		h.call(args...).Ends(1, "is there and Ready")
		h.call(append(args, "--force="+former.node)...).Ends(0)
	}
	a.follows("of-b")
	b.follows("of-a")
	w.Must(w.WaitVolumeGone(w.Soon(), going.Name))
	a.made("later", class)
}

// A node is deleted and joins again, as another object: its daemon goes on, with what was there and
// with what is new.
func TestNodeJoinsAgain(t *testing.T) {
	w, h, class := oneHost(t)
	data, going := h.made("data", class), h.made("going", class)
	nodes := w.nodes()
	node := getIn(w, nodes, h.node)
	w.Must(nodes.Delete(w.Ctx, h.node, metav1.DeleteOptions{}))
	waits := w.claim("waits", class, "1Mi", annotate(provisionOnNode, h.node))
	node.UID, node.ResourceVersion = "", ""
	status := need(json.Marshal(map[string]any{"status": node.Status}))(w)
	createIn(w, nodes, node)
	need(nodes.Patch(w.Ctx, h.node, types.MergePatchType, status, metav1.PatchOptions{}, "status"))(w)
	w.made(waits)
	if now := h.follows("data"); now.UID != data.UID {
		t.Errorf("the volume is %+v", now.ObjectMeta)
	}
	w.Removes("going", going.Name)
}

// The pool's filesystem is copied to a larger disk, by the page's commands, and mounted in its
// place: the volumes are there, go on, and can be removed, and there is more room.
func TestLargerDisk(t *testing.T) {
	w, h, class := oneHost(t)
	data, going := h.made("data", class), h.made("going", class)
	w.claim("large", class, "150Mi", annotate(provisionOnNode, h.node))
	w.refused(w.get("large"), "NotEnoughSpace")
	h.Kill()
	image := hosttest.Mkfs(t, "ext4", 300)
	larger := hosttest.PoolMount(t, image)
	hosttest.Run(t, "cp", "-a", h.mount+"/.", larger+"/")
	hosttest.Unmount(t, larger)
	hosttest.Unmount(t, h.mount)
	image.Mount(t, h.mount)
	h.run()
	if now := h.follows("data"); now.UID != data.UID {
		t.Errorf("the volume is %+v", now.ObjectMeta)
	}
	w.Must(os.WriteFile(filepath.Join(cluster.PathOf(w.Bound("large")), "data"), nil, 0o600))
	w.Removes("going", going.Name)
	if phase := w.Bound("data").Status.Phase; phase != corev1.VolumeBound {
		t.Errorf("the volume is %s", phase)
	}
}

// The pool gets another name: it is closed until the marker says so, too, and then its volumes
// follow.
func TestPoolRenamed(t *testing.T) {
	w, h, class := oneHost(t)
	before := h.made("data", class)
	h.Kill()
	w.Must(h.Configure(strings.ReplaceAll(h.config(), "[pool.fast]", "[pool.second]")))
	h.run()
	for _, args := range [][]string{
		{"prepare", "second", "--from-node", h.node, "--from-pool", "fast"},
		{"import", "second", "--from-node", h.node},
	} {
		h.call(args...).Ends(0)
	}
	now := h.follows("data")
	if now.UID == before.UID || now.Labels["hostpath-provisioner/pool"] != "second" {
		t.Errorf("the volume is %+v", now.ObjectMeta)
	}
	w.Removes("data", before.Name)
}
