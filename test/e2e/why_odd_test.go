package e2e

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// A pod that its node cannot start is told so, a node is known whose name does not fit in a label,
// and of a snapshot what the snapshot-controller says.
func TestWhyOdd(t *testing.T) {
	w := newEnvironment(t)
	s := w.snapshots()
	long := strings.Repeat("long", 15)
	if os.Getenv(fixture.Confined) != "" { // whose trial of the policies has the name as a label
		long = "a"
	}
	a := w.bareHost(hosttest.Mkfs(w, "ext4", 96), long, `snapshots = "copy"`)
	w.Must(w.AddHost(w.Ctx, a.node, map[string]string{corev1.LabelHostname: w.Namespace + "-a"}))
	a.run()
	b := w.newHost("b")
	admin := w.killer().kubeconfig()
	data := a.made("data", w.Class("now", immediate))

	a.why(admin, "pv", data.Name, "of node "+a.node, "waits for: nothing").Lacks("does not exist")
	w.podOn(b.node, "elsewhere", "data")
	a.why(admin, "pod", "elsewhere", "waits for: a volume that is not there: it is on node "+b.node,
		"has its volume on node "+a.node, "without spec.nodeName")
	w.podOn(a.node, "here", "data")
	a.why(admin, "pod", "here", "waits for: the kubelet of node "+a.node+": it starts the pod",
		"kubectl describe pod here -n "+w.Namespace)

	class := *w.get("data").Spec.StorageClassName
	w.claim("takes", class, "1Mi", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName = data.Name
	})
	a.why(admin, "pvc", "takes", "waits for: volume "+data.Name+", which claim "+w.Namespace+
		"/data has")
	w.claim("names", class, "1Mi", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName = w.Namespace
	})
	a.why(admin, "pvc", "names", "waits for: volume "+w.Namespace+", which does not exist")

	content := s.ask("snap", data, w.Provisioner, "Delete")
	s.patchSnapshot("snap", `{"spec":{"source":{"volumeSnapshotContentName":"named"}}}`)
	a.why(admin, "volumesnapshot.snapshot.storage.k8s.io", "snap",
		"the snapshot-controller, which binds it to content named")
	s.patchSnapshot("snap", `{"status":{"error":{"message":"no class \"x\""}}}`, "status")
	a.why(admin, "vs", "snap", `the snapshot-controller, which cannot: no class "x"`)
	s.patchSnapshot("snap", `{"status":{"error":null}}`, "status")
	s.ready("snap", content)
	s.patchSnapshot("snap", `{"metadata":{"finalizers":["example.com/holds"]}}`)
	w.Must(s.api.Of("volumesnapshots").Delete(w.Ctx, "snap", metav1.DeleteOptions{}))
	a.why(admin, "vs", "snap", "waits for: its deletion: it has example.com/holds")
	s.patchSnapshot("snap", `{"metadata":{"finalizers":null}}`)
}

func (s *snapshots) patchSnapshot(name, patch string, subresources ...string) {
	s.Helper()
	need(s.api.Of("volumesnapshots").Patch(s.Ctx, name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}, subresources...))(s)
}
