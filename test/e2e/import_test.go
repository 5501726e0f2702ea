package e2e

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// dies kills a daemon, as if that were a minute ago.
func (h *host) dies() { h.w.Helper(); h.Kill(); h.silent() }

// silent has a daemon's last write be a minute old: its node's lease does not say that it lives.
func (h *host) silent() {
	h.w.Helper()
	err := h.w.leases().Delete(h.w.Ctx, "hostpath-provisioner-node."+h.node, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		h.w.Must(err)
	}
}

// unplugs ends a daemon and takes its disk out.
func (h *host) unplugs() {
	h.w.Helper()
	h.dies()
	hosttest.Unmount(h.w, h.mount)
}

// plugs puts a disk into the host, which has never seen it, in the place of its own, if it has one.
func (h *host) plugs(image hosttest.Image) *host {
	h.w.Helper()
	if err := unix.Unmount(h.mount, 0); err != nil && !errors.Is(err, unix.EINVAL) { // no mount point
		h.w.Fatal(err)
	}
	h.w.Must(os.RemoveAll(h.Path("state", "pools")))
	image.Mount(h.w, h.mount)
	return h
}

// follows wants a volume to be the host's, bound, and to have its data, and returns it.
func (h *host) follows(claim string) *corev1.PersistentVolume {
	h.w.Helper()
	h.w.Eventually("claim "+claim+" is bound", func() bool {
		return h.w.get(claim).Status.Phase == corev1.ClaimBound
	})
	pv := h.w.Bound(claim)
	at := filepath.Join(h.mount, pv.Name)
	said := cluster.PathOf(pv)
	term := pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0]
	label := cmp.Or(h.label, "host-of-"+h.node)
	if said != at || pv.Labels[nodeLabel] != h.node || term.Values[0] != label {
		h.w.Errorf("volume of claim %s: %s, %v, %v", claim, said, pv.Labels, term)
	}
	h.wantData(at, claim)
	return pv
}

// A disk moves to another host, where the pool has another path: every volume follows, whatever its
// source, and the snapshot, too, however often the call is killed. What was released stays so, and
// what was being removed is removed there. A StatefulSet goes on with its data. Refused are a
// node that is Ready, and a volume that a pod there uses. Volumes of other nodes stay as they are.
// The disk moves back in the same way.
func TestImport(t *testing.T) {
	w := withDriver(t)
	s := w.snapshots()
	a := w.newHost("a", `snapshots = "copy"`).quiet().aliased(allPeers()...).run()
	local := w.Class("local", immediate, fixture.Parameters("source", "local"))
	csi := w.Class("csi", immediate, fixture.Parameters("source", "csi"))
	host := w.Class("host", immediate)
	w.stateful(w.Class("w", wait))
	set := w.Bound("data-set-0")
	w.Must(os.WriteFile(filepath.Join(a.mount, set.Name, "data"), []byte("data-set-0"), 0o600))
	data := a.made("data", host)
	a.made("local", local)
	a.made("csi", csi)
	kept, going := a.made("kept", host), a.made("going", host)
	archived, adopted := a.made("archived", host), peerNamed("rancher").made(a, "adopted")
	a.adopts()
	content, _ := s.take("snap", data)
	b, c := w.newHost("b", `snapshots = "copy"`).quiet(), w.newHost("c").quiet().run()
	b.aliased(allPeers()...)
	other := c.made("other", host)
	a.Kill()
	a.cutShort(archived, "archive", true)
	a.unplugs()
	w.Retain(kept.Name)
	w.DeleteClaim("kept", "going", "archived")
	w.DeleteVolume(going.Name)
	b.plugs(a.image).run()
	k, args := w.killer(), []string{"import", "fast", "--from-node", a.node}
	admin := append(slices.Clone(args), "--kubeconfig", k.kubeconfig())
	b.call(admin...).Ends(1, "is there and Ready")
	w.Must(w.notReady(a.node))
	out := b.call(append(admin, "--dry-run")...).Ends(1).Out
	golden(t, "import-dry-run", strings.NewReplacer(content, "CONTENT", set.Name, "PV-of-set").
		Replace(b.told(strings.ReplaceAll(out, a.node, "FORMER"), data, kept, going, archived, adopted)))
	w.deletePod("set-0")
	w.Eventually("the pod is not on the node", func() bool { return w.nodeOf("set-0") != a.node })
	k.toTheEnd(b, args...)
	k.diedAt(3 * enough)
	for _, name := range []string{"data-set-0", "data", "local", "csi"} {
		b.follows(name)
		w.event(w.get(name), "VolumeMoved")
	}
	w.runsOn("set-0", b) // where its data is
	for _, node := range []string{a.node, b.node} {
		told := w.event(w.nodeObject(node), "VolumeMoved")
		if !strings.HasSuffix(told.Message, "from node "+a.node+" to node "+b.node) {
			t.Errorf("node %s was told %q", node, told.Message)
		}
	}
	now := w.Bound("adopted")
	at := filepath.Join(b.mount, filepath.Base(cluster.PathOf(adopted)))
	if now.UID == adopted.UID || cluster.PathOf(now) != at || now.Labels[nodeLabel] != b.node {
		t.Errorf("the adopted volume is %+v", now)
	}
	b.wantData(cluster.PathOf(now), "adopted")
	b.wantData(filepath.Join(b.ours("archive"), archived.Name), "archived")
	w.Gone(archived.Name, going.Name)
	w.Eventually("what is promised came, too", func() bool {
		return b.promised() >= 6<<20 // five volumes and the adopted one
	})
	released := w.Volume(kept.Name)
	if released.Status.Phase != corev1.VolumeReleased || released.Labels[nodeLabel] != b.node {
		t.Errorf("the released volume is %s on %v", released.Status.Phase, released.Labels)
	}
	if v := w.Volume(other.Name); v.UID != other.UID {
		t.Error("another node's volume was touched")
	}
	b.wantData(filepath.Join(b.mount, kept.Name), "kept")
	s.remove("snap", content)
	w.DeleteClaim("local")
	w.Eventually("what is deleted goes", func() bool {
		_, err := os.Stat(filepath.Join(b.mount, going.Name))
		return os.IsNotExist(err) && len(b.tree()) == len(pool.Of("", "", "", "", ""))+2
	})

	b.unplugs()
	w.Must(w.nodes().Delete(w.Ctx, b.node, metav1.DeleteOptions{}))
	w.deletePod("set-0")
	a.plugs(a.image).run()
	admin[3] = b.node
	a.call(admin...).Ends(0)
	for _, name := range []string{"data-set-0", "data", "csi"} {
		a.follows(name)
	}
}

// Of two disks with the same records one has its volumes: where a third node has them by now,
// nothing is moved, and nothing is written on this disk. The node's name typed again takes the disk
// over, and no volume.
func TestImportSecondDisk(t *testing.T) {
	w := newEnvironment(t)
	a := w.newHost("a").quiet().run()
	a.made("data", w.Class("c", immediate))
	b, c := w.newHost("b").quiet(), w.newHost("c").quiet()
	a.unplugs()
	w.Must(w.nodes().Delete(w.Ctx, a.node, metav1.DeleteOptions{}))
	c.plugs(a.image.Copy(t))
	b.plugs(a.image).run()
	args := []string{"import", "fast", "--from-node", a.node}
	out := b.call(args...).Ends(0).Out
	w.shows(out, a.node, "node-a", "bad-days.md", "A node is dead, its disk is not")
	pv, marker := b.follows("data"), c.marker(c.ours("pool.json"))
	c.call(args...).Ends(1, "is on node "+b.node+" by now, which has another disk with the same records")
	if now := c.marker(c.ours("pool.json")); !reflect.DeepEqual(now, marker) {
		t.Errorf("the marker is %v, was %v", now, marker)
	}
	c.call(append(args, "--force="+a.node)...).Ends(0, "0 moved, 1 left, 0 refused")
	owner := c.marker(c.ours("pool.json"))["node"]
	if now := w.Volume(pv.Name); now.UID != pv.UID || owner != c.node {
		t.Errorf("the volume is %+v, the marker %v", now.ObjectMeta, c.marker(c.ours("pool.json")))
	}
}

// A call dies when the object is gone and the next one is not yet there, and the disk goes on to a
// third node: the volume follows to that one, whatever the record says of the second.
func TestImportGoesOn(t *testing.T) {
	w := newEnvironment(t)
	a := w.newHost("a").quiet().run()
	before := a.made("data", w.Class("c", immediate))
	h, k := a, w.killer()
	for _, kind := range []string{"DELETE persistentvolumes", "PATCH persistentvolumes"} {
		k.kinds[kind] = enough
	}
	for _, name := range []string{"b", "c"} {
		next := w.newHost(name).quiet()
		h.unplugs()
		w.Must(w.nodes().Delete(w.Ctx, h.node, metav1.DeleteOptions{}))
		next.plugs(a.image).run()
		args := []string{"import", "fast", "--from-node", h.node}
		if h = next; name == "c" {
			h.call(append(args, "--kubeconfig", k.kubeconfig())...).Ends(0)
			break
		}
		if out, err := k.once(h, args...); !k.died {
			t.Fatalf("not killed: %v\n%s", err, out)
		}
		w.Must(w.WaitVolumeGone(w.Soon(), before.Name))
	}
	h.follows("data")
}

// Another cluster, and one that forgot the node, know nothing of a disk's volumes: their objects
// are made from the records, however often the call is killed, and with --claims the claims, too. A
// claim that has the name and is another volume's is left alone. Then they are as all others.
func TestImportNewCluster(t *testing.T) {
	w := withDriver(t)
	a := w.newHost("a").quiet().run()
	old, class := w.Class("old", immediate), w.Class("new", immediate)
	csi := w.Class("csi", immediate, fixture.Parameters("source", "csi"))
	volumes := map[string]*corev1.PersistentVolume{}
	for _, name := range []string{"data", "own", "taken"} {
		volumes[name] = a.made(name, old)
	}
	volumes["csi"] = a.made("csi", csi)
	a.unplugs()
	w.Must(w.nodes().Delete(w.Ctx, a.node, metav1.DeleteOptions{}))
	k := w.killer()
	for _, name := range []string{"data", "taken", "csi"} { // "own" stays, and is Lost
		w.DeleteClaim(name)
	}
	b := w.newHost("b").quiet()
	b.call(k.forgets(a)...).Ends(0)
	w.Must(w.WaitClaimGone(w.Soon(), w.Namespace, "taken"))
	w.claim("taken", old, "1Mi", annotate(provisionOnNode, "nobody"))
	b.plugs(a.image)
	b.editMarkers(func(m map[string]any) { m["cluster"] = "another" }, b.ours("pool.json"))
	b.run()
	args := []string{"import", "fast", "--new-cluster", "--from-node", a.node}
	b.call("import", "fast", "--new-cluster").Ends(1, "--from-node "+a.node)
	b.call(append(args, "--dry-run")...).Ends(1, "3 would be made, 0 left, 1 refused")
	k.fails = true // one claim is refused
	k.toTheEnd(b, append(args, "--claims", "--class", old+"="+class)...)
	k.diedAt(2 * enough)
	for _, name := range []string{"data", "own", "csi"} {
		if pv := b.follows(name); pv.Name != volumes[name].Name || pv.UID == volumes[name].UID {
			t.Errorf("claim %s has volume %s", name, pv.Name)
		}
	}
	if got := *w.get("data").Spec.StorageClassName; got != class {
		t.Errorf("the claim has class %s", got)
	}
	taken := w.get("taken")
	if taken.Spec.VolumeName != "" {
		t.Errorf("a claim that is not its own is bound to %s", taken.Spec.VolumeName)
	}
	w.Must(w.WaitVolumeGone(w.Soon(), volumes["taken"].Name))
	b.wantData(filepath.Join(b.mount, volumes["taken"].Name), "taken")
	w.Removes("data", volumes["data"].Name)
	w.DeleteClaim("taken")
	args = []string{"import", "fast", "--new-cluster", "--claims"}
	b.call(args...).Ends(1, "an administrator's kube")
	b.call(append(args, "--kubeconfig", k.kubeconfig())...).Ends(0)
	b.follows("taken")
}

// The node's hostname label changes, and the pool's storage is mounted at another path: with the
// node's own name the volumes are made again as the two are now, however often the call is killed.
// What a pod uses is left until the pod is gone. A snapshot names the node already. Another call
// does nothing.
func TestImportOfTheSameNode(t *testing.T) {
	w := newEnvironment(t)
	s := w.snapshots()
	a := w.newHost("a", `snapshots = "copy"`).quiet().run()
	class := w.Class("c", immediate)
	before := a.made("data", class)
	s.take("snap", before)
	a.made("used", class)
	w.pod("uses", []string{a.node}, "used")
	w.runsOn("uses", a)
	label := `{"metadata":{"labels":{"kubernetes.io/hostname":"renamed-` + a.node + `"}}}`
	patchIn(w, w.nodes(), a.node, label)
	a.unplugs()
	b := w.hostAt(hosttest.PoolMount(w, a.image), "a", `snapshots = "copy"`).quiet()
	b.label = "renamed-" + a.node
	b.run()
	k, args := w.killer(), []string{"import", "fast", "--from-node", a.node}
	b.call(append(args, "--dry-run")...).Ends(1, "1 would be moved, 0 left, 1 refused")
	k.fails = true // of the one that is used
	k.toTheEnd(b, args...)
	k.diedAt(6)
	if pv := b.follows("data"); pv.UID == before.UID {
		t.Error("the volume is the one of before")
	}
	w.deletePod("uses")
	b.call(args...).Ends(0, "1 moved, 0 left")
	b.follows("used")
	b.call(args...).Ends(0, "0 moved, 0 left")
}
