package mountpoint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// A bare directory whose path in its filesystem is no UTF-8: the mount point itself is, as the
// configuration has it.
func TestPathThatIsNoUTF8(t *testing.T) {
	dir := hosttest.Dir(t)
	latin, srv := filepath.Join(dir, "donn\xe9es"), filepath.Join(dir, "srv")
	pool := filepath.Join(srv, "pool")
	must(t, os.MkdirAll(filepath.Join(latin, "pool"), 0o700))
	must(t, os.Mkdir(srv, 0o700))
	hosttest.Mount(t, "--bind", latin, srv)
	hosttest.SetImmutable(t, pool, true)
	tmpfs(t, pool)
	env := newEnvironment(t, pool)
	table, err := mounts.Read()
	must(t, err)
	_, parent, _ := mounts.At(table, pool)
	if b := env.under(pool); b.On != parent.Locate(pool) || !b.Immutable {
		t.Errorf("%+v, want %+v", b, parent.Locate(pool))
	}
}
