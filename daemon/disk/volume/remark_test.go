package volume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// A marker is replaced as a whole and only by one of the same ID, and what a crash left beside it
// goes.
func TestRemark(t *testing.T) {
	dir := hosttest.Dir(t)
	p := New(Options{Name: "fast", Path: dir})
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	id := pool.Identity(t, dir)
	m := hostcheck.NewMarker("fast", time.Now())
	if err := p.Remark(t.Context(), id, m); err == nil {
		t.Error("a pool without a marker got one")
	}
	text, err := hostcheck.EncodeMarker(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.InitMarker(t.Context(), id, text); err != nil {
		t.Fatal(err)
	}
	orphaned := filepath.Join(dir, metaDir, markerAside+"X")
	if err := os.WriteFile(orphaned, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.Node, m.FormerNodes, m.Cluster = "b", "a", "c"
	other := hostcheck.NewMarker("fast", time.Now())
	if err := p.Remark(t.Context(), id, other); !errors.Is(err, ErrPrepared) {
		t.Errorf("a marker with another ID: %v", err)
	}
	if err := p.Remark(t.Context(), id, m); err != nil {
		t.Fatal(err)
	}
	got, err := hostcheck.ReadMarker(int(root.Fd()))
	if err != nil || got != m {
		t.Errorf("read %+v, %v, want %+v", got, err, m)
	}
	if _, err := os.Stat(orphaned); !os.IsNotExist(err) {
		t.Errorf("what a crash left is there: %v", err)
	}
	if err := p.Remark(t.Context(), mounts.Identity{}, m); !errors.Is(err, ErrDirectoryReplaced) {
		t.Errorf("another directory: %v", err)
	}
}
