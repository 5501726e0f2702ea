package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

var marker = []byte("{\"version\": 1}\n")

// rig is a prepared pool and the identity that hostcheck would have seen.
type rig struct {
	*Pool
	path string
	id   mounts.Identity
}

// onDisk prepares a pool in dir.
func onDisk(t testing.TB, dir string) *rig {
	t.Helper()
	r := &rig{Pool: New(Options{Name: "fast", Path: dir}), path: dir, id: pool.Identity(t, dir)}
	if err := r.InitMarker(t.Context(), r.id, marker); err != nil {
		t.Fatal(err)
	}
	return r
}

// onTmpfs is a pool for what does not depend on the filesystem.
func onTmpfs(t testing.TB) *rig {
	t.Helper()
	return onDisk(t, hosttest.Dir(t))
}

func spec(pv string) Spec {
	return Spec{
		Record: record.Record{PV: pv, Namespace: "default", Claim: "data", ClaimUID: "uid-of-" + pv, Directory: "default-data-" + pv, Requested: 1 << 30},
		Mode:   0o777, UID: 1234, GID: 5678,
	}
}

func (r *rig) create(t testing.TB, pv string) string {
	t.Helper()
	dir, err := r.Create(context.Background(), r.id, spec(pv))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func (r *rig) meta(elements ...string) string {
	return filepath.Join(append([]string{r.path, metaDir}, elements...)...)
}

func pvName(i int) string { return fmt.Sprintf("pvc-00000000-0000-0000-0000-%012d", i) }

// Purge is what a caller does whose hand removed the volume's object.
func (r *rig) Purge(ctx context.Context, id mounts.Identity, pv string) (Purged, error) {
	if err := r.Discard(ctx, id, pv); err != nil && !errors.Is(err, ErrRetained) {
		return Purged{}, err
	}
	return r.Pool.Purge(ctx, id, pv)
}

// PutBack is for the claim that the volume was made for.
func (r *rig) PutBack(ctx context.Context, id mounts.Identity, pv string) error {
	return r.Pool.PutBack(ctx, id, pv, spec(pv).ClaimUID)
}
