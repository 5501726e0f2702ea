package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// csiDriver is kubevirt's. Tests that run at the same time have drivers of their own names.
const csiDriver = "kubevirt.io.hostpath-provisioner"

func (w *environment) ownDriver() (driver, flag string) {
	return w.Namespace + ".csi", "--from-csi=" + w.Namespace + ".csi"
}

// ofCSI is a volume object as kubevirt's CSI driver and its external provisioner leave it.
func ofCSI(h *host, csiDriver string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		pv.Finalizers = []string{finalizer}
		pv.Annotations = map[string]string{
			"pv.kubernetes.io/provisioned-by":                            csiDriver,
			"volume.kubernetes.io/provisioner-deletion-secret-name":      "",
			"volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
		}
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: csiDriver, VolumeHandle: filepath.Base(cluster.PathOf(pv)),
			VolumeAttributes: map[string]string{"storagePool": "fast", "storage.kubernetes.io/csiProvisionerIdentity": "1-2-" + csiDriver},
		}}
		pv.Spec.NodeAffinity = cluster.Affinity("topology.hostpath.csi/node", h.node)
		wholeFilesystem(h, pv)
	}
}

// madeByCSI is a bound claim with such a volume, and a file in its directory.
func (h *host) madeByCSI(driver, name string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	h.w.Helper()
	p := peer{provisioner: driver, directory: byVolume, shape: func(*host, *corev1.PersistentVolume) {}}
	pv := p.volume(h, name)
	h.w.Must(os.Mkdir(cluster.PathOf(pv), 0o777))
	h.w.Must(os.WriteFile(filepath.Join(cluster.PathOf(pv), "data"), []byte(name), 0o600))
	for _, f := range append([]func(*corev1.PersistentVolume){ofCSI(h, driver)}, change...) {
		f(pv)
	}
	return p.publish(h, pv)
}

// inode tells a directory from a copy.
func (h *host) inode(name string) uint64 {
	h.w.Helper()
	info := need(os.Stat(filepath.Join(h.mount, name)))(h.w)
	return info.Sys().(*syscall.Stat_t).Ino
}

// keepsData wants a volume's directory to be the one that it was, with what is in it.
func (h *host) keepsData(pv *corev1.PersistentVolume, inode uint64) {
	h.w.Helper()
	h.wantData(filepath.Join(h.mount, pv.Name), pv.Spec.ClaimRef.Name)
	if now := h.inode(pv.Name); now != inode {
		h.w.Errorf("%s has inode %d, was %d", pv.Name, now, inode)
	}
}

// rebound waits until the claim is bound, by both sides, and returns its volume.
func (w *environment) rebound(pv *corev1.PersistentVolume, nudge bool) *corev1.PersistentVolume {
	w.Helper()
	ref := pv.Spec.ClaimRef
	_, err := w.WaitClaim(w.Soon(), ref.Namespace, ref.Name, func(c *corev1.PersistentVolumeClaim) bool {
		if c.Status.Phase == corev1.ClaimLost && nudge { // a claim that is changed is looked at; else after pvclaimbinder-sync-period
			_, _ = w.Client().CoreV1().PersistentVolumeClaims(c.Namespace).Patch(w.Ctx, c.Name, types.MergePatchType,
				fmt.Appendf(nil, `{"metadata":{"labels":{"seen":"%s"}}}`, c.ResourceVersion), metav1.PatchOptions{})
		}
		return c.UID == ref.UID && c.Spec.VolumeName == pv.Name && c.Status.Phase == corev1.ClaimBound
	})
	if err != nil {
		is, why := w.pvs().Get(w.Ctx, pv.Name, metav1.GetOptions{})
		w.Fatalf("%v\nits volume: %v, %v", err, is, why)
	}
	return w.Phase(pv.Name, corev1.VolumeBound)
}

// asBefore wants an object to be what it was, but for what the server gives to each new one.
func (w *environment) asBefore(was *corev1.PersistentVolume) {
	w.Helper()
	was, now := was.DeepCopy(), w.rebound(was, true)
	for _, v := range []*corev1.PersistentVolume{was, now} {
		v.UID, v.ResourceVersion, v.ManagedFields, v.CreationTimestamp = "", "", nil, metav1.Time{}
		v.Status.LastPhaseTransitionTime, v.Spec.ClaimRef.ResourceVersion = nil, ""
		slices.Sort(v.Finalizers)
	}
	if now.String() != was.String() {
		w.Errorf("back as\n%s\nwas\n%s", now, was)
	}
}

// externalProvisioner is what the driver's provisioner does, sooner than that would: the directory
// of a volume of the driver's source whose policy is Delete goes as soon as its claim or its object
// does.
func (h *host) externalProvisioner() {
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			all, err := h.w.pvs().List(h.w.Ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			for _, v := range all.Items {
				if v.Spec.CSI != nil && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete &&
					strings.Contains(v.Spec.StorageClassName, h.w.Namespace) && (v.DeletionTimestamp != nil || v.Status.Phase == corev1.VolumeReleased) {
					os.RemoveAll(filepath.Join(h.mount, v.Spec.CSI.VolumeHandle))
				}
			}
		}
	})
	h.w.Cleanup(func() { close(stop); done.Wait() })
}

// The whole way: refused as long as the driver runs or a pod uses the volume, then taken over
// beside a running daemon, used by a pod again, removed with its claim; and given back.
func TestAdoptFromCSI(t *testing.T) {
	const fromCSI = "--from-csi=" + csiDriver
	w := newEnvironment(t)
	h := w.newHost("a").aliased(csiDriver).run()
	one, two := h.madeByCSI(csiDriver, "one"), h.madeByCSI(csiDriver, "two")
	inode := h.inode(one.Name)
	h.externalProvisioner()
	story := &story{h: h, volumes: []*corev1.PersistentVolume{one, two}}
	story.adopt()
	createIn(w, w.Client().StorageV1().CSINodes(), &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: h.node},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: csiDriver, NodeID: h.node, TopologyKeys: []string{"topology.hostpath.csi/node"}}}},
	})
	story.adopt(fromCSI)
	patchIn(w, w.Client().StorageV1().CSINodes(), h.node, `{"spec":{"drivers":[]}}`)
	w.pod("user", nil, "one")
	story.adopt(fromCSI, "--dry-run")
	w.endPod("user")
	story.adopt(fromCSI)
	story.adopt(fromCSI)
	story.adopt()
	golden(t, "adopt-csi", story.String())

	for _, pv := range []*corev1.PersistentVolume{one, two} {
		now := w.rebound(pv, false)
		if now.Spec.Local == nil || cluster.PathOf(now) != filepath.Join(h.mount, pv.Name) || now.Spec.PersistentVolumeReclaimPolicy != pv.Spec.PersistentVolumeReclaimPolicy {
			t.Errorf("%s is %s", pv.Name, now)
		}
	}
	h.keepsData(one, inode)
	w.pod("again", nil, "one")
	pod := need(w.WaitPodScheduled(w.Soon(), w.Namespace, "again"))(w)
	if pod.Spec.NodeName != h.node {
		t.Errorf("the pod is on %q", pod.Spec.NodeName)
	}
	w.Removes("two", two.Name)
	h.wantTree(one.Name, "ours/volumes/"+one.Name+".json")

	h.call("adopt", "fast", "--undo").Ends(1, "pod "+w.Namespace+"/again uses it")
	w.endPod("again")
	h.adopts("--undo")
	w.asBefore(one)
	h.keepsData(one, inode)
	h.wantTree(one.Name)
}

// Killed at each request that changes an object, before and after it, forwards and back, with the
// old provisioner at work and the daemon running; the next call, in either direction, finishes. At
// no moment is the data removed. Each direction of the next call has every second of these moments,
// and with make test-worlds each.
func TestAdoptFromCSIKilled(t *testing.T) {
	w := newEnvironment(t)
	driver, fromCSI := w.ownDriver()
	h := w.newHost("a").aliased(driver).run()
	h.externalProvisioner()
	k := w.killerAs(h.Path("kubeconfig")) // with the rights that a daemon has
	pv := h.madeByCSI(driver, "data")
	inode := h.inode(pv.Name)
	forward, back := []string{"adopt", "fast", fromCSI}, []string{"adopt", "fast", "--undo"}
	does := func(args []string) {
		t.Helper()
		h.call(args...).Ends(0)
	}
	half, deaths, whole := 0, 0, os.Getenv("HOSTPATH_WORLDS") == "whole"
	ways := [][3][]string{{forward, forward, back}, {forward, back, nil}, {back, back, nil},
		{back, forward, back}}
	for i, way := range ways {
		for n, after := 1, !whole && i%2 == 1; ; after = !after {
			if way[0][2] == "--undo" {
				does(forward)
			}
			died, said := k.dies(h, n, after, way[0]...)
			h.keepsData(pv, inode)
			if out, _ := h.Call("volumes"); strings.Contains(out, "half adopted") {
				half++
			}
			for _, next := range way[1:] {
				if next != nil {
					does(next)
				}
			}
			h.keepsData(pv, inode)
			w.asBefore(pv)
			if !died {
				if n < 5 {
					t.Errorf("%q makes %d changes: %s", way[0], n-1, said)
				}
				break
			}
			deaths++
			if after || !whole {
				n++
			}
		}
	}
	t.Logf("%d deaths, %d of them told by volumes", deaths, half)
	if half == 0 {
		t.Error("volumes told of none")
	}
	h.wantTree(pv.Name)
}

// On two nodes at once, which both have a directory of each handle and take the word that they have
// the data: each volume has one node, and the other one has no record of it.
func TestAdoptFromCSIOnTwoNodes(t *testing.T) {
	w := newEnvironment(t)
	driver, fromCSI := w.ownDriver()
	a := w.newHost("a").aliased(driver)
	b, inB := a.beside("b")
	var names []string
	for _, name := range []string{"v", "w", "x", "y", "z"} {
		pv := a.madeByCSI(driver, name, func(pv *corev1.PersistentVolume) { pv.Spec.NodeAffinity = nil })
		w.Must(os.Mkdir(inB(pv.Name), 0o777))
		names = append(names, pv.Name)
	}
	a.call("adopt", "fast", fromCSI).Ends(1).Counts("no affinity", len(names))
	for _, v := range adoptedByBoth(a, b, inB, names, fromCSI, word) {
		if v.Spec.Local == nil {
			t.Errorf("%s is of neither", v.Name)
		}
	}
}

// The claim that Kubernetes calls Lost is deleted before the call is made again: the data stays.
func TestAdoptFromCSIClaimDeleted(t *testing.T) {
	w := newEnvironment(t)
	driver, fromCSI := w.ownDriver()
	h := w.newHost("a").aliased(driver).run()
	k := w.killerAs(h.Path("kubeconfig")) // with the rights that a daemon has
	pv := h.madeByCSI(driver, "data")
	inode := h.inode(pv.Name)
	if died, said := k.dies(h, 4, false, "adopt", "fast", fromCSI); !died {
		t.Fatalf("it did not die:\n%s", said)
	}
	need(w.WaitClaim(w.Soon(), w.Namespace, "data", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimLost }))(w)
	w.DeleteClaim("data")
	w.Must(w.WaitClaimGone(w.Soon(), w.Namespace, "data"))
	h.call("adopt", "fast", fromCSI).Ends(0, "its claim is gone, so it was made with the policy Retain")
	now := w.Phase(pv.Name, corev1.VolumeReleased)
	if now.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		t.Errorf("%s", now)
	}
	h.made("later", w.Class("c", immediate)) // the daemon has seen what came before it
	h.keepsData(pv, inode)
}
