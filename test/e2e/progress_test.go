package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hungfs"
)

// oneWork is what is under way in a pool.
type oneWork struct {
	Kind, Pool, Volume string
	Files              int
}

// work is what the status has under way.
func (h *host) work() []oneWork {
	h.w.Helper()
	out, _ := h.Call("status", "--json")
	var s struct{ Work []oneWork }
	h.w.Must(json.Unmarshal([]byte(out), &s))
	return s.Work
}

// worksOn waits until the status and the metrics have the daemon work on one volume, and returns
// how many files it has done.
func (h *host) worksOn(address, kind, pv string) (files int) {
	h.w.Helper()
	h.w.Eventually(kind+" is in the status and in the metrics", func() bool {
		all := h.work()
		if len(all) != 1 || all[0].Files == 0 {
			return false
		}
		if files = all[0].Files; all[0] != (oneWork{kind, "fast", pv, files}) {
			h.w.Fatalf("%+v", all)
		}
		metrics, of := page(h.w, "http://"+address+"/metrics"), fmt.Sprintf("{kind=%q,pool=\"fast\"}", kind)
		return strings.Contains(metrics, "\nhostpath_provisioner_work_running"+of+" 1\n") &&
			strings.Contains(metrics, fmt.Sprintf("\nhostpath_provisioner_work_files%s %d\n", of, files))
	})
	want := fmt.Sprintf("\npool fast: %s of %s: %d files", kind, pv, files)
	h.call("status").says(want)
	return files
}

// worksOnNothing waits until nothing is under way.
func (h *host) worksOnNothing(address, kind string) {
	h.w.Helper()
	running := fmt.Sprintf("\nhostpath_provisioner_work_running{kind=%q,pool=\"fast\"} 0\n", kind)
	h.w.Eventually("nothing is under way", func() bool {
		return len(h.work()) == 0 && strings.Contains(page(h.w, "http://"+address+"/metrics"), running)
	})
}

// How far a copy and a purge are is seen while they are under way, and not any more after that.
func TestWorkUnderWay(t *testing.T) {
	t.Run("copy", func(t *testing.T) {
		w := newEnvironment(t)
		h := w.newHostOn(hosttest.Mkfs(w, "ext4", 96), "a", `clones = "copy"`)
		address := h.metrics()
		h.run()
		class := w.Class("c", immediate)
		w.claim("data", class, "10Mi")
		below := filepath.Join(h.mount, w.Bound("data").Name, "below")
		w.Must(os.Mkdir(below, 0o755))
		for i := range 100 {
			w.Must(os.WriteFile(filepath.Join(below, fmt.Sprint(i)), []byte("data"), 0o644))
		}
		// The copy waits at this file: a process has a lease on it.
		held := need(os.OpenFile(filepath.Join(below, "50"), os.O_RDWR, 0))(w)
		defer held.Close()
		need(unix.FcntlInt(held.Fd(), unix.F_SETLEASE, unix.F_WRLCK))(w)
		clone := w.claim("clone", class, "10Mi", from("data"))
		if n := h.worksOn(address, "clone", "pvc-"+string(clone.UID)); n < 2 || n > 101 {
			t.Errorf("%d files are copied, want 2 directories and up to 99 files", n)
		}
		w.Must(held.Close())
		w.Bound("clone")
		h.worksOnNothing(address, "clone")
	})
	t.Run("purge", func(t *testing.T) {
		w := newEnvironment(t)
		mount, fs := onFUSE(t, false)
		h := w.newNodes(mount, []string{"a"})[0].host
		address := h.metrics()
		h.run()
		pv := w.bound("data", w.Class("c", immediate), "1Mi")
		for i := range 1100 {
			w.Must(os.WriteFile(filepath.Join(mount, pv.Name, fmt.Sprint(i)), nil, 0o600))
		}
		// After a pass over the directory its owner is shut out of it, and the purge waits there.
		fs.Hold(hungfs.Setattr)
		defer fs.Resume()
		w.DeleteClaim("data")
		fs.AwaitHeld()
		if n := h.worksOn(address, "purge", pv.Name); n > 1100 {
			t.Errorf("%d files are removed of 1,100", n)
		}
		fs.Resume()
		w.Must(w.WaitVolumeGone(w.Soon(), pv.Name))
		h.worksOnNothing(address, "purge")
	})
}
