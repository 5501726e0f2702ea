//go:build nodes

package nodes

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// startSnapshotController applies the CustomResourceDefinitions of Kubernetes' snapshots and runs
// the snapshot-controller that belongs to them, beside the control plane. make .build/snapshotter
// builds it.
func startSnapshotController(ctx context.Context, w *environment) {
	definitions, err := filepath.Glob(filepath.Join(filepath.Dir(build(w, "snapshotter/snapshot-controller")), "*.yaml"))
	if err != nil || len(definitions) != 3 {
		w.Fatalf("want three definitions: %q, %v", definitions, err)
	}
	var text []byte
	for _, file := range definitions {
		text = append(append(text, w.read(file)...), "\n---\n"...)
	}
	w.snapshots, err = w.cluster.SnapshotResources(ctx, w.namespace, provisioner, text)
	w.must(err, "applying the definitions")
	_, err = launch(exec.Command(build(w, "snapshotter/snapshot-controller"), "--kubeconfig="+w.cluster.Kubeconfig(), "--v=4"),
		filepath.Join(w.dir, "snapshot-controller.log"))
	w.must(err, "starting the snapshot-controller")
}

func (w *environment) snapshotClass(ctx context.Context, consistency string) {
	w.Helper()
	parameters := map[string]any{"consistency": consistency}
	w.must(w.snapshots.Class(ctx, consistency, parameters), "making a class of snapshots")
}

// snapshot makes a VolumeSnapshot of a claim, waits until it is ready, and returns it with what its
// event says.
func (w *environment) snapshot(ctx context.Context, name, claim, class string) (*unstructured.Unstructured, string) {
	w.Helper()
	w.must(w.cluster.Apply(ctx, fmt.Appendf(nil, `apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: %s, namespace: %s}
spec:
  volumeSnapshotClassName: %s
  source: {persistentVolumeClaimName: %s}
`, name, w.namespace, class, claim)), "making a snapshot")
	var made *unstructured.Unstructured
	err := eventually(ctx, "snapshot "+name, func() (err error) {
		if made, err = w.snapshots.Of("volumesnapshots").Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if ready, _, _ := unstructured.NestedBool(made.Object, "status", "readyToUse"); !ready {
			return fmt.Errorf("its status is %v", made.Object["status"])
		}
		return nil
	})
	if err != nil {
		w.Fatalf("%v\n%s", err, w.events(name))
	}
	return made, w.daemonSays(ctx, name)
}

// daemonSays is the daemon's event about a snapshot. The snapshot-controller has one of the same
// reason.
func (w *environment) daemonSays(ctx context.Context, name string) (said string) {
	w.Helper()
	w.must(eventually(ctx, "the daemon's event", func() error {
		for line := range strings.Lines(w.events(name)) {
			if strings.Contains(line, "is on node") {
				said = strings.TrimSpace(line)
				return nil
			}
		}
		return fmt.Errorf("the events are\n%s", w.events(name))
	}), "waiting")
	w.showf("%s", said)
	return said
}

// snapshotFile is a file of a snapshot on its node, as it was when that was made.
func (w *environment) snapshotFile(h *host, of *unstructured.Unstructured, name string) string {
	w.Helper()
	text, err := os.ReadFile(h.path(poolDir, "snapshot-"+string(of.GetUID()), name))
	w.must(err, "reading a snapshot")
	return strings.TrimSpace(string(text))
}

// deleteSnapshots deletes them, and waits until their contents are gone.
func (w *environment) deleteSnapshots(ctx context.Context, names ...string) {
	w.Helper()
	for _, name := range names {
		err := w.snapshots.Of("volumesnapshots").Delete(ctx, name, metav1.DeleteOptions{})
		w.must(err, "deleting snapshot "+name)
	}
	w.must(eventually(ctx, "the end of the contents", func() error {
		left, err := w.snapshots.Of("volumesnapshotcontents").List(ctx, metav1.ListOptions{})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d are left", len(left.Items))
		}
		return err
	}), "deleting snapshots")
}
