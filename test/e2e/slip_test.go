package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// A slip in a volume object's capacity takes no room that the pool has not, and is told; one that
// has room takes it until it is taken back. No other claim has to wait for a volume to be
// deleted, and what a user requests meanwhile is not said to be there.
func TestWrongCapacity(t *testing.T) {
	w := newEnvironment(t)
	h, pv := w.expandable()
	capacity := func(size string) {
		patch := fmt.Sprintf(`{"spec":{"capacity":{"storage":%q}}}`, size)
		w.PatchVolume(pv.Name, types.MergePatchType, patch)
	}
	before := h.recorded(pv.Name)
	capacity("100Gi")
	w.Must(h.Signal(syscall.SIGHUP))
	w.event(w.Volume(pv.Name), "NotEnoughSpace")
	if now := h.recorded(pv.Name); now != before {
		t.Errorf("recorded are %d bytes, were %d", now, before)
	}
	w.Must(w.Request("data", "16Mi"))
	w.refused(w.claimUntil("data", w.Infeasible()), "NotEnoughSpace", "100Gi", pv.Name)
	capacity("10Mi")
	w.Sized("data", "16Mi")
	for _, mib := range []int64{50, 16} { // with room; and no signal: the change alone is noticed
		capacity(fmt.Sprintf("%dMi", mib))
		w.Eventually("the record follows", func() bool { return h.recorded(pv.Name) == mib<<20 })
	}
	h.made("other", w.Class("other", immediate))
}

// A volume object that is made anew, bound, for a volume that is archived has it put back at once;
// for one whose directory is gone claim and volume are told at once. Nothing waits for the next
// comparison of all records.
func TestMadeAnew(t *testing.T) {
	w, h, class := oneHost(t, `on_delete = "archive"`)
	archived := h.made("archived", class)
	w.Removes("archived", archived.Name)
	h.wantTree("ours/archive/"+archived.Name, "ours/archive/"+archived.Name+".json")
	anew := func(name string, was *corev1.PersistentVolume) *corev1.PersistentVolume {
		c := w.claim(name, class, "1Mi", func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName = was.Name
		})
		pv := was.DeepCopy()
		pv.UID, pv.ResourceVersion, pv.DeletionTimestamp = "", "", nil
		pv.Finalizers = []string{finalizer}
		ref := pv.Spec.ClaimRef
		ref.UID, ref.Name, ref.ResourceVersion = c.UID, name, ""
		pv.Status = corev1.PersistentVolumeStatus{}
		volumes := w.pvs()
		made := createIn(w, volumes, pv)
		w.Bound(name)
		return made
	}
	w.event(anew("back", archived), "VolumePutBack")
	h.wantData(cluster.PathOf(archived), "archived")
	gone := archived.DeepCopy()
	gone.Name = "pvc-gone"
	gone.Spec.Local.Path = strings.ReplaceAll(cluster.PathOf(gone), archived.Name, gone.Name)
	w.event(anew("gone", gone), "VolumeLost")
	h.wantTree(pool.Of(archived.Name)...)
}
