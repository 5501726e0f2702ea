package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Version 0.1.0 let the object of a volume go once its directory was in the trash, and emptied that
// later. What waited there when it was upgraded goes, where object and claim are gone; what is
// still wanted stays.
func TestTrashOfVersion1(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a").run()
	class := w.Class("c", immediate)
	waited, kept := h.made("waited", class), h.made("kept", class)
	h.Kill()
	for _, volume := range []*corev1.PersistentVolume{waited, kept} {
		pv := volume.Name
		h.cutShort(volume, "trash", false)
		text, err := os.ReadFile(h.record(pv))
		w.Must(err)
		var record map[string]any
		w.Must(json.Unmarshal(text, &record))
		record["version"] = 1
		text, err = json.Marshal(record)
		w.Must(err)
		w.Must(os.WriteFile(h.record(pv), text, 0o600))
		w.retain(pv)
		if pv == waited.Name {
			w.DeleteClaim("waited")
		}
		w.deleteVolume(pv)
		w.force(pv)
	}
	h.run()
	h.wantTree("ours/trash/"+kept.Name, "ours/volumes/"+kept.Name+".json")
	h.wantData(filepath.Join(h.ours("trash"), kept.Name), "kept")
}
