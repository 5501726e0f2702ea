package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A volume of the name that a claim's would get, which a stranger made, is named on the claim. When
// it is gone the claim is bound, whatever the watch does not bring.
func TestNameTaken(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a").run()
	claim := w.claim("data", w.Class("c", wait), "8Mi")
	volumes := w.pvs()
	stranger := createIn(w, volumes, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pvc-%s", claim.UID)},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: "other",
			Capacity:         corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/other"},
			},
		},
	})
	w.pod("user", []string{h.node}, "data")
	w.event(claim, "VolumeNameTaken")
	w.Must(volumes.Delete(w.Ctx, stranger.Name, metav1.DeleteOptions{}))
	gone := time.Now()
	w.Must(w.WaitVolumeGone(w.Soon(), stranger.Name))
	w.Bound("data")
	t.Logf("bound %s after the stranger was deleted", time.Since(gone).Round(time.Millisecond))
}
