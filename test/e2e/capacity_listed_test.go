package e2e

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A class that was made after the policies were installed is not in their list, so that nothing is
// published for it and the scheduler sees no node with room. Its claims are told why, in the API
// server's words; the other classes are published as before; and when the list has it, all is well
// without a restart.
func TestClassThatThePoliciesDoNotList(t *testing.T) {
	w := withDriver(t)
	h, class := w.newHost("a").run(), w.Class("listed", wait)
	w.awaitPublished(class, func(all map[string]int64) bool { return all[h.node] > 60 })
	w.awaitCompared(class, h.node)
	lists := w.deniesOf("storage.k8s.io", "csistoragecapacities", admissionv1.Create,
		fmt.Sprintf("!object.storageClassName.endsWith('later') || object.metadata.namespace != %q",
			"hostpath-provisioner"), "the class is not in the list")
	forbidden := &storagev1.CSIStorageCapacity{StorageClassName: "any-later",
		ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}}
	w.Eventually("the policy is at work", func() bool {
		_, err := w.Client().StorageV1().CSIStorageCapacities("hostpath-provisioner").Create(w.Ctx,
			forbidden, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "the class is not in the list")
	})
	later := w.Class("later", wait)
	h.call("status").Becomes("the class is not in the list")
	claim := w.wanted("data", later, "1Mi", h.node)
	w.warned(w.unhurried(), claim, "APIRefused", later, "the class is not in the list", "finds no room")
	w.wanted("other", class, "1Mi", h.node)
	w.Bound("other")
	lists()
	w.Bound("data")
}
