package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// A pool's directory that others can write to closes the pool, also under a daemon that works in
// it; prepare takes the bits away beside the volumes, and what waited goes on.
func TestWritablePool(t *testing.T) {
	w, h, class := oneHost(t)
	before := h.made("before", class)
	w.Must(os.Chmod(h.mount, 0o777))
	w.Must(h.WaitStatus(w.Soon(), "pool fast is closed: "+h.mount+" has mode 0777"))
	waits := w.claim("waits", class, "1Mi")
	w.refused(waits, "PoolClosed")
	h.call("check", "fast").Fails("closed: WritableByOthers", "hostpath-provisioner prepare fast")
	h.call("prepare", "fast").Ends(0, "changed the mode of "+h.mount+" from 0777 to 0755")
	after := w.Bound("waits")
	h.wantTree(pool.Of(before.Name, after.Name)...)
}

// A second pool that a bind mount puts into a volume of the first stays closed, and the first
// works.
func TestPoolInsideAnother(t *testing.T) {
	w := newEnvironment(t)
	again := filepath.Join(hosttest.Dir(t), "again")
	w.Must(os.Mkdir(again, 0o700))
	h := w.newHost("a", "default = true\n[pool.second]\nrequire_mount = false", `path = "`+again+`"`)
	inside := filepath.Join(h.mount, "volume", "deep")
	w.Must(os.MkdirAll(inside, 0o700))
	hosttest.Mount(t, "--bind", inside, again)
	h.call("prepare", "second").Fails("share directories of one filesystem by a bind mount")
	h.run()
	w.Must(h.WaitStatus(w.Soon(), "1 of 2 pools open"))
	h.call("check").Fails("pool second: PoolsOverlap: ")
	h.made("first", w.Class("c", immediate))
}
