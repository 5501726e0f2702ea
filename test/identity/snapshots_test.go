package identity

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// patchContent changes a VolumeSnapshotContent, or its status.
func (w *world) patchContent(as kubernetes.Interface, name, patch string,
	subresource ...string) error {
	path := append([]string{"/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents", name},
		subresource...)
	return as.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(path...).Body([]byte(patch)).Do(w.ctx).Error()
}

// content makes a snapshot's content, which a node has taken, or none with "".
func (w *world) content(name, node string) string {
	w.Helper()
	s, err := w.Snapshots(w.ctx, "default", "hostpath-provisioner")
	if err != nil && !strings.Contains(err.Error(), "already exists") { // the class
		w.Fatal(err)
	}
	content, err := s.Ask(w.ctx, name, "pvc-of-"+name, "hostpath-provisioner", "Retain")
	w.must(err)
	if node != "" {
		w.must(w.patchContent(w.admin, content, taken(node)))
	}
	return content
}

func taken(node string) string {
	return fmt.Sprintf(`{"metadata":{"annotations":{"hostpath-provisioner/node":%q}}}`, node)
}

func readyAs(handle string) string {
	return fmt.Sprintf(`{"status":{"readyToUse":true,"snapshotHandle":%q}}`, handle)
}

// A node writes to the contents that it has taken and to no others, and what it says of these is
// about their own snapshots.
func TestSnapshotContents(t *testing.T) {
	w := newWorld(t)
	free, ofA, ofB := w.content("free", ""), w.content("of-a", "node-a"), w.content("of-b",
		"node-b")
	own := func(content string) string {
		return strings.Replace(content, "snapcontent-",
			"snapshot-", 1)
	}
	const released = `{"metadata":{"finalizers":null}}`
	for _, c := range []struct {
		what, content, patch, status, want string
	}{
		{"say that one is ready that no node has taken", free, readyAs(own(free)), "status",
			"not this node's"},
		{"say that another node's is ready", ofB, readyAs(own(ofB)), "status", "not this node's"},
		{"say that an own one is another snapshot", ofA, readyAs(own(ofB)), "status",
			"the handle is another snapshot's"},
		{"take one for another node", free, taken("node-b"), "", "taken for the daemon's own node"},
		{"take another node's", ofB, taken("node-a"), "", "taken for the daemon's own node"},
		{"give an own one away", ofA, taken("node-b"), "", "taken for the daemon's own node"},
		{"release an own one that stays", ofA, released, "", "not being deleted"},
		{"release another node's", ofB, released, "", "not being deleted"},
		{"have its data deleted", ofA, `{"spec":{"deletionPolicy":"Delete"}}`, "",
			"spec stays as it is"},
		{"pretend that its VolumeSnapshot goes", ofA,
			`{"metadata":{"annotations":{"snapshot.storage.kubernetes.io/volumesnapshot-being-deleted":"yes"}}}`, "", ""},
		{"label it", ofA, `{"metadata":{"labels":{"a":"b"}}}`, "", "labels stay"},
	} {
		var sub []string
		if c.status != "" {
			sub = []string{c.status}
		}
		if err := w.patchContent(w.a, c.content, c.patch, sub...); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
	delete := w.a.CoreV1().RESTClient().Delete().AbsPath("/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents",
		ofA).Body(&metav1.DeleteOptions{})
	if err := delete.Do(w.ctx).Error(); err == nil ||
		!strings.Contains(err.Error(), "cannot delete resource") {
		t.Errorf("delete: %v", err)
	}
	w.must(w.patchContent(w.a, free, taken("node-a")))
	byPeople := `{"status":{"readyToUse":true}}` // without a handle nothing is
	w.must(w.patchContent(w.admin, ofA, byPeople, "status"))
	for _, content := range []string{free, ofA} {
		w.must(w.patchContent(w.a, content, readyAs(own(content)), "status"))
	}
	if err := w.patchContent(w.a, ofA, `{"status":{"readyToUse":false}}`, "status"); err == nil ||
		!strings.Contains(err.Error(), "ready already") {
		t.Errorf("take it back: %v", err)
	}
}
