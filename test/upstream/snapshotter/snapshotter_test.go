// Package snapshotter runs the snapshot-controller of Kubernetes, with the
// CustomResourceDefinitions that belong to it, against the daemon: the example of
// docs/snapshots.md, from the VolumeSnapshot to the claim that is made from it.
package snapshotter

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pages"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// environment is a cluster, the resources of snapshots once they are installed, and one node.
type environment struct {
	*fixture.Environment
	snapshots *cluster.Snapshots
	node      string
	mount     string
}

func start(t *testing.T) *environment {
	t.Helper()
	w := &environment{Environment: fixture.New(t, fixture.OwnPlane(t), "snapshots-"), node: "node-a"}
	w.Provisioner = "hostpath-provisioner"
	w.Must(w.AddNode(w.Ctx, w.node, map[string]string{corev1.LabelHostname: w.node}))
	return w
}

// daemon is that of the node, with the configuration of the page, on a filesystem that makes
// snapshots in this way.
func (w *environment) daemon(fs string, mib int, way string) *rig.Daemon {
	w.Helper()
	dir := hosttest.Dir(w)
	w.mount = hosttest.PoolMount(w, hosttest.Mkfs(w, fs, mib))
	kubeconfig := filepath.Join(dir, "kubeconfig")
	w.Must(w.ServiceAccountKubeconfig(w.Ctx, "hostpath-provisioner", "hostpath-provisioner", "", kubeconfig))
	configured := strings.NewReplacer(`"/srv/fast"`, fmt.Sprintf("%q", w.mount),
		`snapshots = "live"`, fmt.Sprintf("snapshots = %q", way)).Replace(w.block("toml"))
	return w.Daemon(w.node, "fast", rig.Options{Dir: dir, Config: fmt.Sprintf("node = %q\nkubeconfig = %q\nmetrics = \"\"\n%s", w.node, kubeconfig, configured)})
}

// block is the page's example in a language.
func (w *environment) block(language string) string {
	w.Helper()
	page := pages.Open("../../..") // this module is not the repository
	return hosttest.Need(page.Take("snapshots.md", "Snapshots", language, 0))(w)[0].Text
}

// install builds and starts the snapshot-controller, which ends with the test, and applies the
// CustomResourceDefinitions that belong to it.
func (w *environment) install() {
	w.Helper()
	dir := hosttest.Dir(w)
	hosttest.Run(w, "./build.sh", dir)
	var definitions []byte
	for _, name := range []string{"volumesnapshots", "volumesnapshotcontents", "volumesnapshotclasses"} {
		text := hosttest.Need(os.ReadFile(filepath.Join(dir, name+".yaml")))(w)
		definitions = append(append(definitions, text...), "\n---\n"...)
	}
	w.snapshots = hosttest.Need(w.SnapshotResources(w.Ctx, w.Namespace, w.Provisioner, definitions))(w)
	log := hosttest.Need(os.Create(filepath.Join(dir, "log")))(w)
	w.Cleanup(func() {
		text, _ := os.ReadFile(log.Name())
		if w.Failed() {
			w.Logf("the log of the snapshot-controller:\n%s", text)
		}
	})
	controller := exec.CommandContext(w.Ctx, filepath.Join(dir, "snapshot-controller"), "--kubeconfig="+w.Kubeconfig(), "--v=4")
	controller.Stdout, controller.Stderr = log, log
	w.Must(controller.Start())
	w.Cleanup(func() { _ = controller.Process.Kill(); _ = controller.Wait() })
}

// status is that of a VolumeSnapshot.
func (w *environment) status(name string) map[string]any {
	w.Helper()
	o := hosttest.Need(w.snapshots.Of("volumesnapshots").Get(w.Ctx, name, metav1.GetOptions{}))(w)
	status, _, _ := unstructured.NestedMap(o.Object, "status")
	return status
}

// The page's example works, on a cluster that gets the resources and the controller after the
// daemon has started.
func TestSnapshotsPage(t *testing.T) {
	t.Run("xfs", func(t *testing.T) { tryPage(t, "xfs", 320, "live") })
	t.Run("btrfs", func(t *testing.T) { tryPage(t, "btrfs", 160, "snapshot") })
}

func tryPage(t *testing.T, fs string, mib int, way string) {
	w := start(t)
	w.Run(w.daemon(fs, mib, way))
	w.install()
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	class := cluster.StorageClass("fast", w.Provisioner, mode)
	class.Parameters = map[string]string{"pool": "fast"}
	hosttest.Need(w.Client().StorageV1().StorageClasses().
		Create(w.Ctx, class, metav1.CreateOptions{}))(w)
	claim := cluster.Claim(w.Namespace, "data", "fast", "10Mi")
	claim.Annotations = map[string]string{"kubevirt.io/provisionOnNode": w.node}
	claims := w.Client().CoreV1().PersistentVolumeClaims(w.Namespace)
	hosttest.Need(claims.Create(w.Ctx, claim, metav1.CreateOptions{}))(w)
	origin := w.Bound("data")
	w.Must(os.WriteFile(filepath.Join(w.mount, origin.Name, "file"), []byte("data"), 0o600))
	for doc := range strings.SplitSeq(w.block("yaml"), "---\n") {
		if strings.Contains(doc, "kind: VolumeSnapshotClass") {
			w.Must(w.Apply(w.Ctx, []byte(doc)))
			continue
		}
		w.Must(w.Apply(w.Ctx, []byte(strings.Replace(doc, "metadata:\n", "metadata:\n  namespace: "+w.Namespace+"\n", 1))))
	}
	w.Eventually("the snapshot is ready", func() bool { return w.status("monday")["readyToUse"] == true })
	if status := w.status("monday"); status["restoreSize"] != "10Mi" || status["error"] != nil {
		t.Errorf("status %v", status)
	}
	w.DeleteClaim("data")
	restored := w.Bound("restored")
	w.wantFile(restored)
	w.Must(w.snapshots.Of("volumesnapshots").Delete(w.Ctx, "monday", metav1.DeleteOptions{}))
	w.Eventually("the snapshot is gone", func() bool {
		_, err := w.snapshots.Of("volumesnapshots").Get(w.Ctx, "monday", metav1.GetOptions{})
		contents, listed := w.snapshots.Of("volumesnapshotcontents").List(w.Ctx, metav1.ListOptions{})
		return apierrors.IsNotFound(err) && listed == nil && len(contents.Items) == 0
	})
	w.WantTree(w.node, w.mount, pool.Of(restored.Name)...)
	w.wantFile(restored)
	w.refused()
}

// wantFile checks what the origin had.
func (w *environment) wantFile(pv *corev1.PersistentVolume) {
	w.Helper()
	got, err := os.ReadFile(filepath.Join(w.mount, pv.Name, "file"))
	if err != nil || string(got) != "data" || pv.Spec.CSI == nil {
		w.Errorf("%q, %v, source %+v", got, err, pv.Spec.PersistentVolumeSource)
	}
}

// ask asks for a snapshot of claim restored, with a class of its own of this driver.
func (w *environment) ask(name, driver, parameters string) {
	w.Helper()
	w.Must(w.Apply(w.Ctx, fmt.Appendf(nil, `apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: %s}
driver: %s
deletionPolicy: Delete
parameters: %s
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: %[1]s, namespace: %[4]s}
spec:
  volumeSnapshotClassName: %[1]s
  source: {persistentVolumeClaimName: restored}
`, name, driver, parameters, w.Namespace)))
}

// contents are those of a driver.
func (w *environment) contents(driver string) (all []unstructured.Unstructured) {
	w.Helper()
	list := hosttest.Need(w.snapshots.Of("volumesnapshotcontents").
		List(w.Ctx, metav1.ListOptions{}))(w)
	return slices.DeleteFunc(list.Items, func(c unstructured.Unstructured) bool {
		of, _, _ := unstructured.NestedString(c.Object, "spec", "driver")
		return of != driver
	})
}

// refused: why there is no snapshot stands in the VolumeSnapshot, and one that never was ready
// goes. What is another driver's, by its class, the snapshot-controller makes all the same: the
// daemon leaves it alone.
func (w *environment) refused() {
	w.Helper()
	const other = "other.example.com"
	w.ask("others", other, "{}")
	w.Eventually("the snapshot-controller has made a content", func() bool { return len(w.contents(other)) == 1 })
	w.ask("paused", w.Provisioner, "{consistency: paused}")
	w.Eventually("it is said why there is none", func() bool {
		message, _, _ := unstructured.NestedString(w.status("paused"), "error", "message")
		return strings.Contains(message, `and "paused" takes a pool of that`)
	})
	w.Must(w.snapshots.Of("volumesnapshots").Delete(w.Ctx, "paused", metav1.DeleteOptions{}))
	w.Eventually("it is gone", func() bool { return len(w.contents(w.Provisioner)) == 0 })
	content := w.contents(other)[0]
	if _, touched := content.Object["status"]; touched || content.GetAnnotations()[plan.NodeLabel] != "" {
		w.Errorf("the other driver's content became %v", content.Object)
	}
}
