package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

const (
	provisionOnNode = "kubevirt.io/provisionOnNode"
	finalizer       = "external-provisioner.volume.kubernetes.io/finalizer"
)

// made is a claim that is bound on the host, with a file in its volume.
func (h *host) made(name, class string) *corev1.PersistentVolume {
	h.w.Helper()
	pv := h.w.bound(name, class, "1Mi", annotate(provisionOnNode, h.node))
	h.w.Must(os.WriteFile(filepath.Join(cluster.PathOf(pv), "data"), []byte(name), 0o600))
	return pv
}

// What is mounted in a volume keeps it in the trash, until it is unmounted.
func TestDelete(t *testing.T) {
	w, h, class := servingHost(t)
	one, two := h.made("one", class), h.made("two", class)
	w.Removes("one", one.Name)
	if _, err := os.Lstat(filepath.Join(h.mount, one.Name)); !os.IsNotExist(err) {
		t.Errorf("the object is gone and the directory is not: %v", err)
	}
	h.wantTree(pool.Of(two.Name)...)
	trash := h.records("TrashNotEmptied")
	inside := filepath.Join(h.mount, two.Name, "inside")
	w.Must(os.Mkdir(inside, 0o700))
	hosttest.Mount(t, "-t", "tmpfs", "none", inside)
	w.Removes("two", two.Name)
	h.said("reason=PurgeIncomplete", 1)
	trash.Fires()
	hosttest.Unmount(t, filepath.Join(h.ours("trash"), two.Name+"~", "inside"))
	h.wantTree()
	trash.Resolves()
}

// The object is deleted first, while the claim still uses it: nothing happens until the claim goes.
func TestDeleteVolumeBeforeClaim(t *testing.T) {
	w, h, class := oneHost(t)
	pv := h.made("data", class)
	w.DeleteVolume(pv.Name)
	other := h.made("other", w.Class("d", immediate)) // the daemon has seen what came before it
	h.wantTree(pool.Of(pv.Name, other.Name)...)
	w.Removes("data", pv.Name)
	h.wantTree(pool.Of(other.Name)...)
}

func TestRetain(t *testing.T) {
	w, h := running(t)
	pv := h.made("data", w.Class("c", immediate, fixture.Policy(corev1.PersistentVolumeReclaimRetain)))
	// The object may go with its claim, and the data stays, also across a restart.
	w.Retires("data", pv.Name)
	h.again()
	other := h.made("other", w.Class("d", immediate))
	h.wantTree(pool.Of(pv.Name, other.Name)...)
	h.wantData(filepath.Join(h.mount, pv.Name), "data")
}

func TestArchive(t *testing.T) {
	w, h, class := oneHost(t, `on_delete = "archive"`)
	pv := h.made("data", class)
	gone := h.made("gone", w.Class("d", immediate, fixture.Parameters("onDelete", "delete")))
	w.Removes("data", pv.Name)
	w.Removes("gone", gone.Name)
	h.wantTree("ours/archive/"+pv.Name, "ours/archive/"+pv.Name+".json")
	h.wantData(filepath.Join(h.ours("archive"), pv.Name), "data")
}

// hostOfTwoPools runs a daemon that has a pool "other" besides, a plain directory, and returns
// where that is.
func (w *environment) hostOfTwoPools() (h *host, other string) {
	w.Helper()
	other = hosttestDir(w.T, "other")
	h = w.newHost("a", fmt.Sprintf("[pool.other]\npath = %q\nrequire_mount = false", other))
	h.call("prepare", "other").Ends(0)
	return h.run(), other
}

// A volume object that points elsewhere is refused, and what it points to is untouched. Such an
// object is written by hand, as any user with the right to create volumes could.
func TestForgedVolumes(t *testing.T) {
	w := newEnvironment(t)
	h, other := w.hostOfTwoPools()
	victim := h.made("victim", w.Class("c", immediate, fixture.Parameters("pool", "fast")))
	w.Must(os.Symlink("/etc", filepath.Join(h.mount, "link")))
	w.Must(os.Mkdir(filepath.Join(h.mount, "foreign"), 0o755))
	w.Must(os.WriteFile(filepath.Join(other, "precious"), nil, 0o600))
	before := append(pool.Of(victim.Name), "link", "foreign")
	h.wantTree(before...)
	for name, c := range map[string]struct{ path, reason string }{
		"etc":     {"/etc", "PathMismatch"},
		"dots":    {h.mount + "/" + victim.Name + "/../../etc", "PathMismatch"},
		"pool":    {other, "PathMismatch"},
		"victim":  {h.mount + "/" + victim.Name, "PathMismatch"},
		"symlink": {h.mount + "/link", "PathMismatch"},
		"foreign": {h.mount + "/foreign", "PathMismatch"},
	} {
		t.Run(name, func(t *testing.T) {
			forged := victim.DeepCopy()
			forged.ObjectMeta = metav1.ObjectMeta{Name: w.Namespace + "-" + name, Labels: victim.Labels, Annotations: victim.Annotations, Finalizers: []string{finalizer}}
			forged.Spec.Local.Path = c.path
			forged.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: w.Namespace, Name: "never", UID: "never-" + "x"}
			pv, err := w.pvs().Create(w.Ctx, forged, metav1.CreateOptions{})
			if err != nil {
				if name == "dots" { // the API server itself refuses ".." (pkg/apis/core/validation)
					return
				}
				t.Fatal(err)
			}
			w.event(pv, c.reason)
		})
	}
	h.wantTree(before...)
	need(os.Stat(filepath.Join(other, "precious")))(w)
}

// The name and path of a real volume whose record was removed: a directory without a record is
// foreign, whatever the object says. When it is taken away, the object goes without a restart.
func TestUnrecordedDirectoryIsForeign(t *testing.T) {
	w, h, class := servingHost(t)
	pv, trouble := h.made("data", class), h.records("VolumeTrouble")
	w.Must(os.Remove(filepath.Join(h.ours("volumes"), pv.Name+".json")))
	w.DeleteClaim("data")
	w.event(pv, "NotRecorded")
	trouble.Fires()
	h.wantTree(pv.Name)
	// An administrator removes it: the object goes by itself.
	w.Must(os.RemoveAll(filepath.Join(h.mount, pv.Name)))
	w.Must(w.WaitVolumeGone(w.Soon(), pv.Name))
	h.wantTree()
	trouble.Resolves()
}

// The object goes at once, however long the purge takes: when the daemon deletes it, the trash
// still has the directory with all of its 200,000 files.
func TestLargeVolumeGoesAtOnce(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHostOn(hosttest.Mkfs(t, "ext4", 320, "-N", "300000"), "a")
	door := w.behindDoor(h)
	h.run()
	pv := h.made("data", w.Class("c", immediate))
	const files = 200_000
	for i := range files {
		f := need(os.Create(filepath.Join(h.mount, pv.Name, fmt.Sprint(i))))(w)
		f.Close()
	}
	var left atomic.Int64
	object := "/persistentvolumes/" + pv.Name
	door.on(http.MethodDelete, object, func(http.ResponseWriter, *http.Request) bool {
		names, _ := os.ReadDir(filepath.Join(h.ours("trash"), pv.Name))
		left.Store(int64(len(names)))
		return false
	})
	w.Removes("data", pv.Name)
	if n := left.Load(); n != files+1 { // and the one of made
		t.Errorf("the object went when %d of %d files were left", n, files+1)
	}
	h.wantTree() // in the end
}

// The pool was taken out of the configuration: its volumes stay, and say why they are not removed.
func TestPoolNotConfiguredAnyMore(t *testing.T) {
	w := newEnvironment(t)
	h, other := w.hostOfTwoPools()
	class := w.Class("c", immediate, fixture.Parameters("pool", "other"))
	pv, kept := h.made("data", class), h.made("kept", w.Class("r", immediate, fixture.Parameters("pool", "other"), fixture.Policy(corev1.PersistentVolumeReclaimRetain)))
	before, _, _ := strings.Cut(h.config(), "[pool.other]")
	h.reload(before)
	w.Must(h.WaitReady(w.Soon(), 2))
	w.DeleteClaim("data")
	w.event(pv, "UnknownPool")
	// An object that keeps its data may go when it is deleted.
	w.Retires("kept", kept.Name)
	for _, v := range []string{pv.Name, kept.Name} {
		need(os.Stat(filepath.Join(other, v, "data")))(w)
	}
}
