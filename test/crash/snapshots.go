package crash

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// A case of an operation of a snapshot has a VolumeSnapshot in place of a claim, and a content in
// place of an object.

// content is what a VolumeSnapshotContent says.
type content struct{ ready, going bool }

func (w expectation) content() string { return "snapcontent-" + w.uid }

// addSnapshots has the cluster know snapshots, and makes one of the origin, from which claims are
// made.
func (e *environment) addSnapshots() {
	var err error
	e.snapshots, err = e.Cluster.Snapshots(e.Soon(), e.Namespace, e.Node)
	e.Must(err, "making the resources of snapshots")
	name, err := e.snapshots.Ask(e.ctx, origin, e.origin, e.Node, "Delete")
	e.Must(err, "asking for a snapshot")
	if !e.until(func() bool { return e.contents()[name].ready }) {
		e.Fatalf("the origin's snapshot is not ready")
	}
	e.Must(e.snapshots.Bind(e.ctx, origin, name), "binding a snapshot")
}

// contents are all that there are, by name.
func (e *environment) contents() map[string]content {
	all := map[string]content{}
	if e.snapshots == nil {
		return all
	}
	list, err := e.snapshots.Of("volumesnapshotcontents").List(e.ctx, metav1.ListOptions{})
	e.Must(err, "listing contents")
	for _, one := range list.Items {
		ready, _, _ := unstructured.NestedBool(one.Object, "status", "readyToUse")
		all[one.GetName()] = content{ready, one.GetDeletionTimestamp() != nil}
	}
	return all
}

// snap asks for a snapshot of the origin.
func (t *testCase) snap() {
	t.data = originData
	name, err := t.snapshots.Ask(t.ctx, t.claim, t.origin, t.Node, "Delete")
	t.Must(err, "asking for a snapshot")
	t.asked(strings.TrimPrefix(name, "snapcontent-"))
}

// inspectSnapshot looks at the state while the daemon is dead: what is said to be ready is whole,
// and what is gone has no data that is taken for a snapshot.
func (t *testCase) inspectSnapshot() []fault {
	said, is := t.contents()[t.content()]
	d, err := readDir(t.volume)
	switch {
	case said.ready && !said.going && (err != nil || d.data != originData):
		return []fault{{loss, fmt.Sprintf("snapshot %s is said to be ready, and has %q, %v", t.claim, d.data, err)}}
	case t.outcome == gone && t.op.fromBound && !is && err == nil:
		return []fault{{leak, fmt.Sprintf("the content of snapshot %s was gone before its directory", t.claim)}}
	}
	return nil
}

// restore creates a claim that is made from the origin's snapshot. It names no node.
func (t *testCase) restore() {
	t.data = originData
	t.make(func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSource = cluster.FromSnapshot(origin) })
}

// scrubContents removes by force what is not in the baseline.
func (e *environment) scrubContents() {
	for name := range e.contents() {
		if e.baseline["content "+name] {
			continue
		}
		_ = e.snapshots.Of("volumesnapshotcontents").Delete(e.ctx, name, metav1.DeleteOptions{})
		_, _ = e.snapshots.Of("volumesnapshotcontents").Patch(e.ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	}
}
