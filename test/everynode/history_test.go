package everynode

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// That an object is absent is no proof that its claim is gone. These tests make it absent in each
// other way there is, with data on the nodes.

// kept waits until a host's daemon has looked at its records and told that it keeps the volumes,
// which are all that it has.
func (h *host) kept(pvs ...string) { h.w.Helper(); h.keptBeside(nil, pvs...) }

// meant waits until the daemon says that the pool is another cluster's, and says that it is this
// one's.
func (h *host) meant() {
	h.w.Helper()
	h.w.Must(h.WaitStatus(h.w.Soon(), "is a pool of the cluster with the UID"))
	fixture.Call(h.w.T, h.Daemon, "prepare", "fast", "--new-cluster").Ends(0)
	h.w.Must(h.WaitStatus(h.w.Soon(), "1 of 1 pool open"))
}

// keptBeside is kept where there are other volumes, too.
func (h *host) keptBeside(others []string, pvs ...string) {
	h.w.Helper()
	for _, pv := range pvs {
		h.w.Eventually("the daemon on "+h.node+" tells that it keeps "+pv, func() bool {
			for line := range strings.Lines(h.Log()) {
				if strings.Contains(line, "reason=Orphaned") && strings.Contains(line, pv) {
					return true
				}
			}
			return false
		})
	}
	h.wantTree(pool.Of(append(others, pvs...)...)...)
}

// An administrator takes the finalizer off a volume that is being deleted: no daemon saw that its
// claim is gone.
func TestFinalizerTakenOff(t *testing.T) {
	w, hosts, class := three(t)
	pv := w.written(hosts, "data", class)
	for _, h := range hosts {
		h.published(pv)
		h.Kill()
	}
	w.Must(os.Remove(hosts[2].in(pv, "data"))) // a pod may have one that is empty as well
	w.DeleteClaim("data")
	w.ForceOff(pv)
	for _, h := range hosts {
		h.run()
		h.kept(pv)
	}
	for _, h := range hosts[:2] {
		h.wantData(pv)
	}
}

const unpublished = `"unpublished": true`

// published waits until the record says nothing else.
func (h *host) published(pv string) {
	h.w.Helper()
	h.w.Eventually("the record of "+pv+" says that it has an object", func() bool {
		text, err := os.ReadFile(filepath.Join(h.ours("volumes"), pv+".json"))
		return err == nil && !strings.Contains(string(text), unpublished)
	})
}

// A daemon dies between the directory and the object, and the claim goes meanwhile: what a record
// says of its directory is believed, and only an empty one is removed. The kill itself is
// test/crash's.
func TestNeverPublished(t *testing.T) {
	w := newEnvironment(t)
	h := w.host("a").run()
	class := w.Class("c", immediate)
	empty, full := w.made("empty", class), w.made("full", class)
	h.published(empty)
	h.published(full)
	h.write(full)
	h.Kill()
	for name, pv := range map[string]string{"empty": empty, "full": full} {
		record := filepath.Join(h.ours("volumes"), pv+".json")
		text := hosttest.Need(os.ReadFile(record))(w)
		w.Must(os.WriteFile(record, []byte(strings.Replace(string(text), "{", "{"+unpublished+",", 1)), 0o600))
		w.DeleteClaim(name)
		w.ForceOff(pv)
	}
	h.run()
	h.kept(full)
	h.wantData(full)
}

// The claim went while a node was off, and before it is back an operator makes the object again by
// hand, without the label that daemons watch by, to rescue what is on that node: only a read of the
// API itself shows it.
func TestObjectMadeAgain(t *testing.T) {
	w, a, off, class := two(t)
	pv := w.written([]*host{a, off}, "data", class)
	object := w.Volume(pv)
	off.Kill()
	w.Removes("data", pv)
	a.wantTree()
	object.ObjectMeta = metav1.ObjectMeta{Name: pv}
	object.Spec.ClaimRef, object.Spec.PersistentVolumeReclaimPolicy = nil, corev1.PersistentVolumeReclaimRetain
	volumes := w.Client().CoreV1().PersistentVolumes()
	hosttest.Need(volumes.Create(w.Ctx, object, metav1.CreateOptions{}))(w)
	counter := w.counted()
	w.Must(w.kubeconfig(off.kubeconfig))
	off.run()
	w.Eventually("the daemon asks for the object", func() bool { return counter.asked(pv) })
	off.Stop(w.Soon()) // which lets work under way end
	off.wantTree(pool.Of(pv)...)
	off.wantData(pv)
	w.RemovesVolume(pv)
	off.run()
	off.wantTree()
}

// A daemon is pointed at another cluster, or its cluster was made again: its pool is closed until
// the operator says that it is meant, and then its volumes are not there, and nothing is removed,
// neither what has data nor what a pod has not written to yet. Back at its own, it catches up.
func TestAnotherCluster(t *testing.T) {
	t.Parallel()
	other := fixture.OwnPlane(t)
	w := environmentOn(t, plane.Get(t))
	a, moved := w.host("a").run(), w.host("b").run()
	class := w.Class("c", immediate)
	pv, empty := w.written([]*host{a, moved}, "data", class), w.made("empty", class)
	for _, h := range []*host{a, moved} {
		h.published(empty)
	}
	moved.Kill()
	w.Removes("data", pv)
	w.Removes("empty", empty)
	own := hosttest.Need(os.ReadFile(moved.kubeconfig))(w)
	w.Must(other.ServiceAccountKubeconfig(w.Ctx, "hostpath-provisioner", "hostpath-provisioner", "", moved.kubeconfig))
	w.Must(other.AddNode(w.Ctx, moved.node, nil))
	moved.run()
	moved.meant()
	moved.kept(pv, empty)
	moved.wantData(pv)
	moved.Kill()
	w.Must(os.WriteFile(moved.kubeconfig, own, 0o600))
	moved.run()
	moved.meant()
	moved.wantTree()
}

// etcd is restored to a day before the claims were made: on a node that ran all the while, and on
// one that was off when it happened, with data and without. Before that another claim is deleted
// and so has a tombstone, which the restore takes back together with the deletion: its volume is
// there again.
func TestRestored(t *testing.T) {
	t.Parallel()
	plane := fixture.OwnPlane(t)
	w := environmentOn(t, plane)
	on, off := w.host("a").run(), w.host("b").run()
	class := w.Class("c", immediate)
	old := w.made("old", class)
	w.onEach([]*host{on, off}, old)
	w.Must(plane.Kill())
	backup := filepath.Join(plane.Dir(), "etcd-backup")
	hosttest.Run(w, "cp", "-a", etcdOf(plane), backup)
	w.Must(plane.Restart(w.Ctx))

	pv, empty := w.made("data", class), w.made("empty", class)
	for _, h := range []*host{on, off} {
		h.wantTree(pool.Of(old, pv, empty)...)
		h.write(pv)
		h.published(empty)
	}
	off.Kill()
	w.Removes("old", old)
	on.wantTree(pool.Of(pv, empty)...)
	w.Must(plane.Kill())
	w.Must(os.RemoveAll(etcdOf(plane)))
	hosttest.Run(w, "cp", "-a", backup, etcdOf(plane))
	w.Must(plane.Restart(w.Ctx))
	// A watch finds out by itself that the server's data is older, within minutes
	// (kube.StaleAfter); a start finds out at once.
	on.Kill()
	on.run()
	on.keptBeside([]string{old}, pv, empty)
	on.wantData(pv)
	off.run()
	off.keptBeside([]string{old}, pv, empty)
	off.wantData(pv)
}

func etcdOf(c *cluster.Cluster) string { return filepath.Join(c.Dir(), "etcd") }

// tombstone writes the one of a volume whose data is to go.
func (w *environment) tombstone(pv string) {
	w.Helper()
	leases := w.Client().CoordinationV1().Leases("hostpath-provisioner")
	hosttest.Need(leases.Create(w.Ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: pv, Labels: map[string]string{"hostpath-provisioner/tombstone": "delete"},
			Annotations: map[string]string{"hostpath-provisioner/claim-uid": strings.TrimPrefix(pv, "pvc-")},
		},
	}, metav1.CreateOptions{}))(w)
}

// A tombstone that is there already, as its writer leaves it when it dies before the object goes:
// while the claim lives no daemon acts on it, and when the claim goes the others finish.
func TestWriterDied(t *testing.T) {
	w, hosts, class := three(t)
	pv := w.written(hosts, "data", class)
	w.tombstone(pv)
	for _, h := range hosts {
		h.Kill()
		h.run()
		h.wantTree(pool.Of(pv)...)
		h.wantData(pv)
	}
	w.Removes("data", pv)
	w.onEach(hosts)
}

// The API server was restored to a day before the claim was deleted, of which two nodes had begun
// to remove their parts. The part that is whole in the trash is put back; the one whose files were
// going is not, its node says so, and nothing more of it goes. When the claim is deleted once more,
// all go.
func TestPartComesBack(t *testing.T) {
	w, hosts, class := three(t)
	pv := w.made("data", class)
	for i, name := range []string{"", pv, pv + "~"} {
		h := hosts[i]
		h.wantTree(pool.Of(pv)...)
		h.write(pv)
		h.Kill()
		if name != "" {
			w.Must(os.Rename(h.in(pv), filepath.Join(h.ours("trash"), name)))
		}
		h.run()
	}
	w.event(pv, "VolumePutBack", hosts[1])
	w.event(pv, "NodeDirectoryRemoved", hosts[2])
	for _, h := range hosts[:2] {
		h.wantTree(pool.Of(pv)...)
		h.wantData(pv)
	}
	hosts[2].wantTree("ours/trash/"+pv+"~", "ours/volumes/"+pv+".json")
	hosts[2].wantData(filepath.Join(".hostpath-provisioner", "trash", pv+"~"))
	w.Removes("data", pv)
	w.onEach(hosts)
}
