package e2e

import (
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// capacityInPlaceOfADriver: the CSIDriver of another program is left alone, until an administrator
// labels it. Then what its classes can get is published beside what the daemon's own can, and the
// scheduler chooses by it; a claim that fits on no node is told so. A daemon that goes withdraws
// both.
func (w *environment) capacityInPlaceOfADriver() {
	w.Helper()
	w.driver()
	drivers, no := w.Client().StorageV1().CSIDrivers(), false
	createIn(w, drivers, &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: csiDriver},
		Spec:       storagev1.CSIDriverSpec{AttachRequired: &no, StorageCapacity: &no},
	})
	w.mayWriteDriver(csiDriver)
	own, class := w.Class("own", wait), w.ClassOf(csiDriver, "theirs", wait)
	served := fmt.Sprintf("csi_drivers = [%q]", csiDriver)
	small := w.newHost("small").aliased(csiDriver).configureFirst(served).run()
	large := w.newHostOn(hosttest.Mkfs(w, "ext4", 256), "large").aliased(csiDriver).
		configureFirst(served).run()
	both := func(all map[string]int64) bool { return all[small.node] > 60 && all[large.node] > 180 }
	w.awaitPublished(own, both)
	if all := w.published(class); len(all) > 0 || w.comparedOf(csiDriver) {
		w.Errorf("published in another program's name: %v", all)
	}

	for _, h := range []*host{small, large} {
		h.Kill()
	}
	patchIn(w, drivers, csiDriver, `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"hostpath-provisioner"}}}`)
	runAll([]*host{small, large})
	w.awaitPublished(class, both)
	w.Eventually("the driver has the scheduler compare", func() bool { return w.comparedOf(csiDriver) })
	w.awaitCompared(class, small.node, large.node)
	w.wanted("data", class, "120Mi", small.node, large.node)
	w.boundOn("data", large)
	w.awaitPublished(own, func(all map[string]int64) bool { return all[large.node] < 120 })
	huge := w.wanted("huge", class, "1Gi", small.node, large.node)
	need(w.WaitEvent(w.unhurried(), huge, "NoNodeFits"))(w)

	for _, h := range []*host{small, large} {
		h.Kill()
		h.call("withdraw-capacity").Ends(0)
	}
	if left := len(w.published(class)) + len(w.published(own)); left > 0 ||
		w.comparedOf(csiDriver) || w.compared() {
		w.Errorf("withdrawn: %d are left", left)
	}
}
