package identity

import (
	"fmt"
	"strings"
	"testing"
)

// content makes a snapshot's content, which a node has taken, or none with "".
func (w *world) content(name, node string) string {
	w.Helper()
	s, err := w.Snapshots(w.Ctx, "default", "hostpath-provisioner")
	if err != nil && !strings.Contains(err.Error(), "already exists") { // the class
		w.Fatal(err)
	}
	content, err := s.Ask(w.Ctx, name, "pvc-of-"+name, "hostpath-provisioner", "Retain")
	w.Must(err)
	if node != "" {
		w.Must(w.patch(w.admin, contentsAt+content, taken(node)))
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
	free, ofA, ofB := w.content("free", ""), w.content("of-a", "node-a"), w.content("of-b", "node-b")
	own := func(content string) string {
		return strings.Replace(content, "snapcontent-", "snapshot-", 1)
	}
	const released = `{"metadata":{"finalizers":null}}`
	for _, c := range []struct {
		what, content, patch, status, want string
	}{
		{"say that one is ready that no node has taken", free, readyAs(own(free)), "/status",
			"not this node's"},
		{"say that another node's is ready", ofB, readyAs(own(ofB)), "/status", "not this node's"},
		{"say that an own one is another snapshot", ofA, readyAs(own(ofB)), "/status",
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
		if err := w.patch(w.a, contentsAt+c.content+c.status, c.patch); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
	if err := w.delete(w.a, contentsAt+ofA); err == nil ||
		!strings.Contains(err.Error(), "cannot delete resource") {
		t.Errorf("delete: %v", err)
	}
	w.Must(w.patch(w.a, contentsAt+free, taken("node-a")))
	byPeople := `{"status":{"readyToUse":true}}` // without a handle nothing is
	w.Must(w.patch(w.admin, contentsAt+ofA+"/status", byPeople))
	for _, content := range []string{free, ofA} {
		w.Must(w.patch(w.a, contentsAt+content+"/status", readyAs(own(content))))
	}
	err := w.patch(w.a, contentsAt+ofA+"/status", `{"status":{"readyToUse":false}}`)
	if err == nil ||
		!strings.Contains(err.Error(), "ready already") {
		t.Errorf("take it back: %v", err)
	}
}
