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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// startSnapshotController applies the CustomResourceDefinitions of Kubernetes' snapshots and runs
// the snapshot-controller that belongs to them, beside the control plane. make .build/snapshotter
// builds it.
func startSnapshotController(ctx context.Context, w *environment) {
	definitions, err := filepath.Glob(filepath.Join(filepath.Dir(build(w, "snapshotter/snapshot-controller")), "*.yaml"))
	if err != nil || len(definitions) != 3 {
		w.Fatalf("want three definitions: %q, %v", definitions, err)
	}
	for _, file := range definitions {
		w.must(w.cluster.Apply(ctx, w.read(file)), "applying "+filepath.Base(file))
	}
	w.dynamic, err = dynamic.NewForConfig(w.cluster.Config())
	w.must(err, "making a client")
	for _, resource := range []string{"volumesnapshots", "volumesnapshotcontents", "volumesnapshotclasses"} {
		w.must(eventually(ctx, resource, func() error {
			_, err := w.snapshots(resource).List(ctx, metav1.ListOptions{})
			return err
		}), "waiting for the API server")
	}
	_, err = launch(exec.Command(build(w, "snapshotter/snapshot-controller"), "--kubeconfig="+w.cluster.Kubeconfig(), "--v=4"),
		filepath.Join(w.dir, "snapshot-controller.log"))
	w.must(err, "starting the snapshot-controller")
}

// snapshots is the client for one of the three resources.
func (w *environment) snapshots(resource string) dynamic.ResourceInterface {
	all := w.dynamic.Resource(schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: resource})
	if resource == "volumesnapshots" {
		return all.Namespace(w.namespace)
	}
	return all
}

func (w *environment) snapshotClass(ctx context.Context, consistency string) {
	w.Helper()
	w.must(w.cluster.Apply(ctx, fmt.Appendf(nil, `apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: %s}
driver: %s
deletionPolicy: Delete
parameters: {consistency: %s}
`, consistency, provisioner, consistency)), "making a class of snapshots")
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
		if made, err = w.snapshots("volumesnapshots").Get(ctx, name, metav1.GetOptions{}); err != nil {
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
		w.must(w.snapshots("volumesnapshots").Delete(ctx, name, metav1.DeleteOptions{}), "deleting snapshot "+name)
	}
	w.must(eventually(ctx, "the end of the contents", func() error {
		left, err := w.snapshots("volumesnapshotcontents").List(ctx, metav1.ListOptions{})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d are left", len(left.Items))
		}
		return err
	}), "deleting snapshots")
}
