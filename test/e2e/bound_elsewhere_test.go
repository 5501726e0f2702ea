package e2e

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A daemon dies when it has made a directory, and before the object; and the claim is bound to a
// volume that was kept for it. The empty directory goes, and so does what was promised for it.
func TestBoundElsewhereBeforeItsObject(t *testing.T) {
	w := newEnvironmentUnbound(t)
	h := w.newHost("a").run()
	class := w.Class("c", wait)
	pv := w.made(w.claim("data", class, "1Mi", annotate(selectedNode, h.node)))
	h.stop()
	w.deleteVolume(pv.Name)
	w.force(pv.Name)
	kept, claim := w.keptFor("data", class, corev1.VolumeBound), w.get("data")
	kept.Spec.ClaimRef.UID, claim.Spec.VolumeName = claim.UID, kept.Name
	_, err := w.Client().CoreV1().PersistentVolumes().Update(w.Ctx, kept, metav1.UpdateOptions{})
	w.Must(err)
	_, err = w.Client().CoreV1().PersistentVolumeClaims(w.Namespace).Update(w.Ctx, claim, metav1.UpdateOptions{})
	w.Must(err)
	h.run()
	w.Eventually("the empty directory is gone", func() bool {
		_, err := os.Stat(filepath.Join(h.mount, pv.Name))
		return os.IsNotExist(err)
	})
}
