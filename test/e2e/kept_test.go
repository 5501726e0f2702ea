package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// cutShort makes a volume whose claim is deleted while the daemon is dead, which died when it had
// moved the directory to the trash, or to the archive with or without the record.
func (h *host) cutShort(pv *corev1.PersistentVolume, into string, record bool) {
	h.w.Helper()
	h.w.Must(os.Rename(filepath.Join(h.mount, pv.Name), filepath.Join(h.ours(into), pv.Name)))
	if record {
		h.w.Must(os.Rename(h.record(pv.Name), filepath.Join(h.ours(into), pv.Name+".json")))
	}
}

func (h *host) wantData(path, want string) {
	h.w.Helper()
	if data, err := os.ReadFile(filepath.Join(path, "data")); string(data) != want {
		h.w.Errorf("%s has the data %q, %v; want %q", path, data, err, want)
	}
}

// The daemon died between the move out of the pool and the object's removal, and before it comes
// again an administrator decides otherwise. Whatever he does, no byte is lost: what has an object
// is put back, and what has none any more is kept where it is, and told. Then it can be used again,
// or removed, as the documents say.
func TestDecidedOtherwise(t *testing.T) {
	w, h, class := servingHost(t)
	pvs, all := map[string]*corev1.PersistentVolume{}, []string{}
	for _, name := range []string{"retained", "forced", "again", "released", "cleared", "archived", "halved"} {
		pvs[name] = h.made(name, class)
	}
	orphaned := h.records("VolumesOrphaned")
	h.Kill()
	for name, pv := range pvs {
		switch name {
		case "archived", "halved":
			h.cutShort(pv, "archive", name == "archived")
		default:
			h.cutShort(pv, "trash", false)
		}
		w.Releases(name, pv.Name)
		switch name {
		case "cleared":
			w.PatchVolume(pv.Name, types.MergePatchType, `{"spec":{"claimRef":null}}`)
		case "released":
			w.Retain(pv.Name)
		default:
			w.Retain(pv.Name)
			w.DeleteVolume(pv.Name)
		}
		if name == "forced" || name == "again" {
			w.Force(pv.Name)
			all = append(all, "ours/trash/"+pv.Name, "ours/volumes/"+pv.Name+".json")
			continue
		}
		all = append(all, pool.Of(pv.Name)...)
	}
	h.run()
	h.wantTree(all...)
	for _, name := range []string{"retained", "archived", "halved"} {
		w.Must(w.WaitVolumeGone(w.Soon(), pvs[name].Name))
	}
	for _, name := range []string{"released", "cleared"} {
		w.event(w.Volume(pvs[name].Name), "VolumePutBack")
	}
	w.Phase(pvs["cleared"].Name, corev1.VolumeAvailable)
	h.said("reason=Orphaned", 2) // of the two that were forced off
	h.logged().Counts("reason=Orphaned", 2).Says(pvs["forced"].Name)
	orphaned.Fires()
	out, _ := h.Call("volumes")
	for name, state := range map[string]string{"forced": "orphaned", "again": "orphaned", "retained": "retained", "archived": "retained", "released": "retained", "cleared": "available"} {
		if !strings.Contains(line(out, pvs[name].Name), state) {
			t.Errorf("%s is not %s:\n%s", name, state, out)
		}
	}
	h.wantTree(all...)
	for name, pv := range pvs {
		dir := h.mount
		if name == "forced" || name == "again" {
			dir = h.ours("trash")
		}
		h.wantData(filepath.Join(dir, pv.Name), name)
	}
	h.useAgain(pvs["again"], class)
	h.wantData(cluster.PathOf(pvs["again"]), "again")
	// To remove what was forced off: its directory, and the record follows.
	w.Must(os.RemoveAll(filepath.Join(h.ours("trash"), pvs["forced"].Name)))
	w.Must(h.Signal(syscall.SIGHUP))
	w.vanishes(h.record(pvs["forced"].Name))
	orphaned.Resolves()
}

// useAgain makes the object anew, and a claim for it.
func (h *host) useAgain(was *corev1.PersistentVolume, class string) {
	h.w.Helper()
	pv := was.DeepCopy()
	pv.ObjectMeta = metav1.ObjectMeta{Name: was.Name, Labels: was.Labels, Annotations: was.Annotations, Finalizers: []string{finalizer}}
	pv.Spec.ClaimRef, pv.Status = nil, corev1.PersistentVolumeStatus{}
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	createIn(h.w, h.w.pvs(), pv)
	h.w.bound("used-again", class, "1Mi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = was.Name })
	h.w.Eventually("its directory is put back", func() bool {
		_, err := os.Stat(filepath.Join(cluster.PathOf(was), "data"))
		return err == nil
	})
}

// line is the one that begins with a name.
func line(text, name string) string {
	for l := range strings.Lines(text) {
		if strings.HasPrefix(l, name+" ") {
			return l
		}
	}
	return ""
}

// The API server was restored to a day before these volumes were archived, and has them Bound: what
// is whole in the archive is put back, with its record or without, and no event says that a claim
// should be deleted. When the claims are deleted once more, all is archived again.
func TestArchivedComesBack(t *testing.T) {
	w, h, class := oneHost(t, `on_delete = "archive"`)
	one, half := h.made("one", class), h.made("half", class)
	h.Kill()
	h.cutShort(one, "archive", true)
	h.cutShort(half, "archive", false)
	h.run()
	for _, pv := range []*corev1.PersistentVolume{one, half} {
		w.event(pv, "VolumePutBack")
	}
	h.wantTree(pool.Of(one.Name, half.Name)...)
	h.wantData(cluster.PathOf(one), "one")
	h.wantData(cluster.PathOf(half), "half")
	h.logged().Lacks("VolumeLost")
	var all []string
	for _, pv := range []*corev1.PersistentVolume{one, half} {
		w.Removes(pv.Spec.ClaimRef.Name, pv.Name)
		all = append(all, "ours/archive/"+pv.Name, "ours/archive/"+pv.Name+".json")
	}
	h.wantTree(all...)
}

// A volume was made and not published, and then the pattern of directories is another one: the
// claim gets the directory that was made for it.
func TestDirectoryOfAnotherPattern(t *testing.T) {
	w, h, door := hostBehindDoor(t)
	door.on(http.MethodPost, volumesAt, func(out http.ResponseWriter, _ *http.Request) bool {
		http.Error(out, "", http.StatusServiceUnavailable)
		return true
	})
	h.run()
	made := w.claim("made", w.Class("c", immediate), "1Mi")
	pv := "pvc-" + string(made.UID)
	h.wantTree(pool.Of(pv)...)
	h.stop()
	door.instead(func(http.ResponseWriter, *http.Request) bool { return false })
	w.Must(h.Configure(h.config() + "directory = \"{{.Claim}}-{{.PV}}\"\n"))
	h.run()
	if got, want := cluster.PathOf(w.Bound("made")), filepath.Join(h.mount, pv); got != want {
		t.Errorf("the volume is %s, want %s", got, want)
	}
	h.wantTree(pool.Of(pv)...)
}
