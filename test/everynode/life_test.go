package everynode

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// A DaemonSet on three nodes with one claim: each pod's node has a directory of its own, and when
// set and claim go nothing is left on any node.
func TestDaemonSet(t *testing.T) {
	w, hosts, _ := three(t)
	pv := w.claim("data", w.Class("w", wait), "1Mi")
	w.daemonSet("agent", "data")
	w.scheduled("agent", hosts...)
	w.wantVolume(w.Bound("data"))
	for _, h := range hosts {
		h.wantTree(pool.Of(pv)...)
		h.write(pv)
	}
	for _, h := range hosts {
		h.wantData(pv) // no other node's
		fixture.Call(t, h.Daemon, "volumes").Ends(0, pv, "bound")
	}
	w.deleteDaemonSet("agent")
	w.Removes("data", pv)
	w.onEach(hosts)
}

// three are nodes whose daemons run, and a class that binds at once.
func three(t *testing.T) (w *environment, hosts []*host, class string) {
	t.Helper()
	w = newEnvironment(t)
	hosts = []*host{w.host("a").run(), w.host("b").run(), w.host("c").run()}
	return w, hosts, w.Class("c", immediate)
}

// two are three without the third.
func two(t *testing.T) (w *environment, a, b *host, class string) {
	t.Helper()
	w = newEnvironment(t)
	return w, w.host("a").run(), w.host("b").run(), w.Class("c", immediate)
}

// wantVolume: what the object must be for pods on every node.
func (w *environment) wantVolume(pv *corev1.PersistentVolume) {
	w.Helper()
	source := pv.Spec.HostPath
	switch {
	case pv.Spec.NodeAffinity != nil:
		w.Errorf("the volume has node affinity %v", pv.Spec.NodeAffinity)
	case source == nil || source.Type == nil || *source.Type != corev1.HostPathDirectory || source.Path != w.pool+"/"+pv.Name:
		w.Errorf("the volume's source is %+v", pv.Spec.PersistentVolumeSource)
	case pv.Labels["hostpath-provisioner/scope"] != "every-node" || pv.Labels["hostpath-provisioner/node"] != "":
		w.Errorf("the volume's labels are %v", pv.Labels)
	}
}

// A node that joins the cluster later gets the directories of the volumes that there are, and only
// those.
func TestJoinsLater(t *testing.T) {
	w, a, b, class := two(t)
	gone, kept := w.made("gone", class), w.made("kept", class)
	w.Removes("gone", gone)
	w.daemonSet("agent", "kept")
	w.scheduled("agent", a, b)
	c := w.host("c").run()
	w.scheduled("agent", c)
	w.onEach([]*host{a, b, c}, kept)
}

// written makes a claim and waits until each host has its volume's directory, with data in it.
func (w *environment) written(hosts []*host, name, class string) (pv string) {
	w.Helper()
	pv = w.made(name, class)
	for _, h := range hosts {
		h.wantTree(pool.Of(pv)...)
		h.write(pv)
	}
	return pv
}

// A daemon that was off, by kill -9, while volumes came and went catches up with both when it
// returns.
func TestOff(t *testing.T) {
	w, hosts, class := three(t)
	off := hosts[2]
	before := w.written(hosts, "before", class)
	off.Kill()
	during := w.made("during", class)
	w.Removes("before", before)
	again := w.made("before", class) // another claim of the same name is no reason to keep it
	off.wantData(before)
	off.run()
	w.onEach(hosts, during, again)
	w.Eventually("the log says that a volume was removed because it was deleted meanwhile", func() bool {
		return strings.Contains(off.Log(), "reason=DeletedLate")
	})
}

// The node whose pool is closed says so at the volume, in words that name it, and once it is well
// again that too. The others go on.
func TestClosedPool(t *testing.T) {
	w, hosts, class := three(t)
	shut := hosts[1]
	early := w.written(hosts, "early", class)
	shut.unmount()
	late := w.made("late", class)
	for _, pv := range []string{early, late} {
		w.event(pv, "PoolClosed", shut, "node "+shut.node+" has no directory for this volume", "not a mount point")
	}
	hosts[0].wantTree(pool.Of(early, late)...)
	shut.wantTree()
	shut.mount()
	shut.wantTree(pool.Of(early, late)...)
	shut.wantData(early)
	for _, pv := range []string{early, late} {
		w.event(pv, "NodeDirectoryReady", shut)
	}
	// And when a claim goes: the others let the object go, this one follows when it can.
	shut.unmount()
	w.DeleteClaim("early")
	w.event(early, "PoolClosed", shut, shut.node, "nothing is removed until that is fixed")
	w.Must(w.WaitVolumeGone(w.Soon(), early))
	hosts[0].wantTree(pool.Of(late)...)
	shut.mount()
	shut.wantTree(pool.Of(late)...)
}

// The node that the scheduler chose first cannot: after a while another one helps, and the pods of
// the set run.
func TestChosenNodeCannot(t *testing.T) {
	w := newEnvironment(t)
	a := w.host("a").run()
	b := w.host("b") // a node of the set without a daemon
	pv := w.claim("data", w.Class("c", wait), "1Mi")
	pod := w.podOn("first", b, "data")
	claims := w.Client().CoreV1().PersistentVolumeClaims(w.Namespace)
	w.Eventually("the claim is given to "+b.node, func() bool {
		claim := hosttest.Need(claims.Get(w.Ctx, "data", metav1.GetOptions{}))(w)
		return claim.Annotations["volume.kubernetes.io/selected-node"] == b.node
	})
	w.wantVolume(w.Bound("data"))
	hosttest.Need(w.WaitPodScheduled(w.Soon(), w.Namespace, pod))(w)
	a.wantTree(pool.Of(pv)...)
	b.wantTree()
	b.run()
	b.wantTree(pool.Of(pv)...)
}

// Another path for the pool is told at the volume, and nothing is made there.
func TestOtherPath(t *testing.T) {
	w := newEnvironment(t)
	a := w.host("a").run()
	other := w.host("b", setting{path: hosttest.MountPoint(t)})
	pv := w.made("data", w.Class("c", immediate))
	other.run()
	w.event(pv, "PathMismatch", other, other.node, a.path, other.path, "must be the same on every node")
	other.wantTree()
	w.Removes("data", pv)
	a.wantTree()
}

// Retain keeps each node's data when the object is deleted, also where the daemon was off
// meanwhile; archive keeps it in each node's archive.
func TestRetainAndArchive(t *testing.T) {
	w, hosts, _ := three(t)
	off := hosts[2]
	keeping := fixture.Policy(corev1.PersistentVolumeReclaimRetain)
	retained := w.made("retained", w.Class("r", immediate, keeping))
	archiving := fixture.Parameters("onDelete", "archive")
	archived := w.made("archived", w.Class("a", immediate, archiving))
	for _, h := range hosts {
		h.wantTree(pool.Of(retained, archived)...)
		h.write(retained)
		h.write(archived)
	}
	off.Kill()
	w.Removes("archived", archived)
	w.Retires("retained", retained)
	off.run()
	for _, h := range hosts {
		h.wantTree(append(pool.Of(retained), "ours/archive/"+archived, "ours/archive/"+archived+".json")...)
		h.wantData(retained)
		h.wantData(".hostpath-provisioner/archive/" + archived)
	}
}

// The policy was changed to Retain while a daemon was off, and the object deleted: its record does
// not know, the tombstone does.
func TestRetainedWhileOff(t *testing.T) {
	w, a, off, class := two(t)
	pv := w.written([]*host{a, off}, "data", class)
	off.Kill()
	w.Retain(pv)
	w.Retires("data", pv)
	off.run()
	w.Eventually("the daemon has looked at its records", func() bool { return strings.Contains(off.Log(), "reason=Retained") })
	for _, h := range []*host{a, off} {
		h.wantTree(pool.Of(pv)...)
		h.wantData(pv)
	}
}

// A tombstone that says that the data goes, of a daemon that died before it let the object go. Then
// the policy became Retain: a node that was off keeps its data as the others do.
func TestRetainedAfterItsTombstone(t *testing.T) {
	w, a, off, class := two(t)
	pv := w.written([]*host{a, off}, "data", class)
	off.Kill()
	a.Kill()
	w.tombstone(pv)
	w.Retain(pv)
	w.Releases("data", pv)
	a.run()
	w.RemovesVolume(pv)
	off.run()
	w.Eventually("the daemon has looked at its records", func() bool {
		return strings.Contains(off.Log(), "reason=Retained") || strings.Contains(off.Log(), "reason=DeletedLate")
	})
	for _, h := range []*host{a, off} {
		h.wantTree(pool.Of(pv)...)
		h.wantData(pv)
	}
}

// Daemons die all the time while claims come and go; in the end each node has exactly what is
// claimed.
func TestKilledInBetween(t *testing.T) {
	w, hosts, class := three(t)
	var left []string
	for i := range 18 {
		name := "claim-" + string(rune('a'+i))
		pv := w.claim(name, class, "1Mi")
		if i%3 != 2 {
			w.Bound(name)
			w.DeleteClaim(name)
		} else {
			left = append(left, pv)
		}
		// At some moment of what follows: a millisecond, ten, a hundred.
		victim := hosts[i%len(hosts)]
		time.Sleep(time.Millisecond << (i % 8))
		victim.Kill()
		victim.run()
	}
	slices.Sort(left)
	w.onEach(hosts, left...)
	w.Eventually("the volume objects are those that are claimed", func() bool {
		of := metav1.ListOptions{LabelSelector: "hostpath-provisioner/scope=every-node"}
		list := hosttest.Need(w.Client().CoreV1().PersistentVolumes().List(w.Ctx, of))(w)
		var there []string
		for _, pv := range list.Items {
			if pv.Annotations["pv.kubernetes.io/provisioned-by"] == w.Provisioner {
				there = append(there, pv.Name)
			}
		}
		slices.Sort(there)
		return slices.Equal(there, left)
	})
	if entries, err := os.ReadDir(w.pool); err != nil || len(entries) > 0 {
		t.Errorf("under the mount points there is %v, %v", entries, err)
	}
}
