package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// The API server was restored to a day before these volumes were deleted, and has them and their
// claims Bound. The directory that a killed daemon left whole in the trash is put back; of one
// whose files were going already, or that is gone, claim and volume say so, and nothing more of it
// goes. When the claims are deleted once more, all go.
func TestComesBack(t *testing.T) {
	w, h, class := oneHost(t)
	back, emptied, gone, stays := h.made("back", class), h.made("emptied", class), h.made("gone", class), h.made("stays", class)
	h.Kill()
	w.Must(os.Rename(filepath.Join(h.mount, back.Name), filepath.Join(h.ours("trash"), back.Name)))
	w.Must(os.Rename(filepath.Join(h.mount, emptied.Name), filepath.Join(h.ours("trash"), emptied.Name+"~")))
	w.Must(os.RemoveAll(filepath.Join(h.mount, gone.Name)))
	w.Must(os.Remove(h.record(gone.Name)))
	h.run()
	for name, reason := range map[string]string{"back": "VolumePutBack", "emptied": "VolumeLost", "gone": "VolumeLost"} {
		claim := getIn(w, w.pvcs(), name)
		event := w.event(claim, reason)
		if !strings.Contains(event.Message, w.Namespace+"/"+name) || (event.Type == corev1.EventTypeNormal) != (reason == "VolumePutBack") {
			t.Errorf("%s: %s %q", name, event.Type, event.Message)
		}
		if strings.Contains(event.Message, "on other nodes before you restore it") != (name == "gone") {
			t.Errorf("%s: %q", name, event.Message) // its record is gone, too: the data may be another node's
		}
		w.event(w.Volume(claim.Spec.VolumeName), reason)
	}
	h.wantData(cluster.PathOf(back), "back")
	h.wantTree(append(pool.Of(back.Name, stays.Name), "ours/trash/"+emptied.Name+"~", "ours/volumes/"+emptied.Name+".json")...)
	h.wantData(filepath.Join(h.ours("trash"), emptied.Name+"~"), "emptied")
	for _, pv := range []*corev1.PersistentVolume{back, emptied, gone} {
		w.Removes(pv.Spec.ClaimRef.Name, pv.Name)
	}
	h.wantTree(pool.Of(stays.Name)...)
}
