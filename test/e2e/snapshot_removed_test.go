package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// A snapshot goes with its content also if people removed its directory, after it was kept and
// imported, and if the record of its volume is damaged.
func TestSnapshotRemovedDamaged(t *testing.T) {
	w, s, h, origin := snapshotHost(t)
	content := s.ask("snap", origin, w.Provisioner, "Retain")
	handle, _ := s.ready("snap", content)["snapshotHandle"].(string)
	s.remove("snap", content)
	imported := "imported-" + strings.TrimPrefix(content, "snapcontent-")
	s.Must(s.api.Import(s.Ctx, "imported", imported, handle))
	s.ready("imported", imported)
	s.Must(os.RemoveAll(filepath.Join(h.mount, handle)))
	s.remove("imported", imported)
	h.wantTree(pool.Of(origin.Name)...)
	content, _ = s.take("later", origin)
	s.Must(os.WriteFile(filepath.Join(h.ours("volumes"), origin.Name+".json"), []byte("damaged"), 0o600))
	s.remove("later", content) // it needs nothing of its volume's record
}

// snapshotOfTwoNodes is a volume and its snapshot on the first of two nodes that make snapshots.
func snapshotOfTwoNodes(t *testing.T) (s *snapshots, h *host, origin *corev1.PersistentVolume, content, handle string) {
	t.Helper()
	w := newEnvironment(t)
	s = w.snapshots()
	h = w.newHost("a", `snapshots = "copy"`).run()
	w.newHost("b", `snapshots = "copy"`).run()
	w.wanted("data", w.Class("c", wait), "10Mi", h.node)
	origin = w.Bound("data")
	content, handle = s.take("snap", origin)
	return s, h, origin, content, handle
}

// Two contents of one handle have the same data. It goes with the last of them.
func TestSnapshotOfTwoContents(t *testing.T) {
	s, h, origin, content, handle := snapshotOfTwoNodes(t)
	second := "second-" + s.Namespace
	s.Must(s.api.Import(s.Ctx, "second", second, handle))
	s.ready("second", second)
	s.remove("snap", content)
	h.wantTree(pool.Of(origin.Name, handle)...)
	s.remove("second", second)
	h.wantTree(pool.Of(origin.Name)...)
}

// A snapshot that cannot be removed because its record is damaged, and one that cannot be made
// because its pool is away, say so. What is ready stays so meanwhile.
func TestSnapshotCannotBeLookedFor(t *testing.T) {
	w, s, h, origin := snapshotHost(t)
	damaged, handle := s.take("damaged", origin)
	ready, _ := s.take("ready", origin)
	s.Must(os.WriteFile(filepath.Join(h.ours("volumes"), handle+".json"), []byte("damaged"), 0o600))
	s.Must(s.api.Remove(s.Ctx, "damaged", damaged))
	s.says(damaged, "cannot look for it: ")
	s.Must(os.Rename(filepath.Join(h.ours(""), "pool.json"), filepath.Join(h.ours(""), "pool.json.away")))
	w.Must(h.WaitStatus(w.Soon(), "is closed"))
	s.says(s.ask("away", origin, w.Provisioner, "Delete"), "cannot look for it: pool fast: ")
	if status := s.status(ready); status["readyToUse"] != true || status["error"] != nil {
		t.Errorf("the ready one: %v", status)
	}
}
