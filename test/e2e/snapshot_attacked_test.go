package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// A content that people made for a handle that is no snapshot's touches nothing, is never ready,
// and can be deleted.
func TestImportOfOtherHandles(t *testing.T) {
	w, s, h, pv := snapshotHost(t)
	handles := map[string]string{
		"unknown": "snapshot-0", "volume": pv.Name, "above": "../" + pv.Name, "below": pv.Name + "/below", "ours": ".hostpath-provisioner",
		"long": strings.Repeat("n", 4096), "absolute": h.mount + "/" + pv.Name,
	}
	of := func(name string) string { return name + "-" + w.Namespace }
	for name, handle := range handles {
		w.Must(s.api.Import(s.Ctx, name, of(name), handle))
	}
	w.Must(s.api.Bind(s.Ctx, "above", of("above")))
	claim := w.claim("waiting", w.Class("w", immediate), "10Mi", restore("above"))
	w.refused(claim, "DataSourceUnusable", "it is not this node's")
	for name := range handles {
		if status := s.status(of(name)); status["readyToUse"] == true {
			t.Errorf("%s: %v", name, status)
		}
		w.Must(s.api.Remove(s.Ctx, name, of(name)))
	}
	for name := range handles {
		s.gone(of(name))
	}
	h.wantTree(pool.Of(pv.Name)...)
}

// A source that is about to go, or whose node is away, is told on the claim. A claim that names its
// volume gets no other one, and what waited for the node is made when that is back.
func TestCopiesWait(t *testing.T) {
	w := newEnvironment(t)
	s := w.snapshots()
	keys := []string{`snapshots = "copy"`, `clones = "copy"`}
	a, b := w.newHost("a", keys...).run(), w.newHost("b", keys...).run()
	class := w.Class("c", immediate)
	w.claim("data", w.Class("w", wait), "10Mi", func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"test/held"} })
	w.pod("user", []string{b.node}, "data")
	pv := w.Bound("data")
	s.take("snap", pv)
	named := w.claim("named", class, "10Mi", from("data"), func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "none-" + w.Namespace })

	claims := w.pvcs()
	w.Must(claims.Delete(w.Ctx, "data", metav1.DeleteOptions{}))
	w.refused(w.claim("of-going", class, "10Mi", from("data")), "DataSourceUnusable", `claim "data": it is being deleted`)
	b.stop()
	w.refused(w.claim("of-away", class, "10Mi", restore("snap")), "DataSourceUnusable", "it is on node "+b.node)
	a.wantTree()
	b.run()
	w.Bound("of-away")
	if now, err := claims.Get(w.Ctx, named.Name, metav1.GetOptions{}); err != nil || now.Status.Phase != corev1.ClaimPending {
		t.Errorf("a claim of a volume that there is not: %+v, %v", now.Status, err)
	}
	patchIn(w, claims, "data", `{"metadata":{"finalizers":null}}`)
}

// While a node's pools make no snapshots its daemon removes none, and no other node lets their
// contents go; once a pool makes them again they are removed.
func TestSnapshotRemovedWhileOff(t *testing.T) {
	w, h, pv, content, handle := snapshotOfTwoNodes(t)
	config := h.config()
	restart := func(text string) {
		h.stop()
		w.Must(h.Configure(text))
		h.run()
	}
	restart(strings.Replace(config, `snapshots = "copy"`, `snapshots = "off"`, 1))
	w.Must(w.api.Remove(w.Ctx, "snap", content))
	later := w.bound("later", w.Class("later", immediate), "1Mi", annotate("kubevirt.io/provisionOnNode", h.node))
	h.wantTree(pool.Of(pv.Name, handle, later.Name)...)
	restart(config)
	w.gone(content)
	h.wantTree(pool.Of(pv.Name, later.Name)...)
}

// Of a volume of kubevirt's driver that was adopted as it is there are snapshots, under that
// driver's name, and claims from them.
func TestSnapshotOfKubevirtsVolume(t *testing.T) {
	w := withDriver(t)
	api := need(w.Snapshots(w.Soon(), w.Namespace, csiDriver))(w)
	s := &snapshots{w, api}
	h := w.newHostOn(hosttest.Mkfs(w, "xfs", 320), "a", `snapshots = "live"`, `source = "csi"`).aliased(csiDriver).configureFirst(fmt.Sprintf("csi_drivers = [%q]", csiDriver)).run()
	pv := h.madeByCSI(csiDriver, "one")
	h.adopts()
	content := s.ask("snap", pv, csiDriver, "Delete")
	s.ready("snap", content)
	restored := w.bound("restored", w.Class("c", immediate), "10Mi", restore("snap"))
	h.wantData(filepath.Join(h.mount, restored.Name), "one")
	s.remove("snap", content)
	node := w.nodeService(h.Daemon, csiDriver)
	w.Must(node.Publish(w.Soon(), "p", csinode.Volume{PV: pv.Name, Attributes: pv.Spec.CSI.VolumeAttributes}))
	h.reads(node, "p", pv)
	w.Must(node.Unpublish(w.Soon(), "p", pv.Name))
}

// A content of which people say that it is ready while its copy is under way, or before, is made
// and said to be ready all the same.
func TestSnapshotReadyByPeople(t *testing.T) {
	w, s, h, origin := snapshotHost(t, "-N", "30000")
	h.many(origin)
	content := s.ask("snap", origin, w.Provisioner, "Delete")
	patchIn(s.environment, s.api.Of("volumesnapshotcontents"), content, `{"status":{"readyToUse":true}}`, "status")
	s.Eventually("it is ready by the daemon's word", func() bool { return s.status(content)["snapshotHandle"] != nil })
	s.ready("snap", content)
	h.wantClone(w.bound("restored", w.Class("r", immediate), "10Mi", restore("snap")))
}

// A snapshot that was asked for while its node was off is not taken of a volume that was given to
// another namespace meanwhile.
func TestSnapshotOfGivenVolume(t *testing.T) {
	w := newEnvironment(t)
	s := w.snapshots()
	h := w.newHost("a", `snapshots = "copy"`).serving().run()
	pv := w.bound("data", w.Class("c", immediate), "10Mi")
	fails := h.records("SnapshotsFail")
	h.stop()
	content := s.ask("snap", pv, w.Provisioner, "Delete")
	const given = `{"spec":{"persistentVolumeReclaimPolicy":"Retain","claimRef":{"namespace":"given","uid":null}}}`
	patchIn(w, w.pvs(), pv.Name, given)
	h.run()
	s.says(content, "the volume is another claim's than when the snapshot was asked for")
	fails.Fires()
	h.wantTree(pool.Of(pv.Name)...)
	s.remove("snap", content)
}
