package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hungfs"
)

// worksOn waits until the status and the metrics have the daemon work on one volume, and returns
// how many files it has done.
func (h *host) worksOn(kind, pv string) (files uint64) {
	h.w.Helper()
	h.w.Eventually(kind+" is in the status and in the metrics", func() bool {
		all := h.status().Work
		if len(all) != 1 || all[0].Files == 0 {
			return false
		}
		files = all[0].Files
		if now := all[0]; now.Kind != kind || now.Pool != "fast" || now.Volume != pv {
			h.w.Fatalf("%+v", all)
		}
		metrics, of := h.scraped(), fmt.Sprintf("{kind=%q,pool=\"fast\"}", kind)
		return strings.Contains(metrics, "\nhostpath_provisioner_work_running"+of+" 1\n") &&
			strings.Contains(metrics, fmt.Sprintf("\nhostpath_provisioner_work_files%s %d\n", of, files))
	})
	want := fmt.Sprintf("\npool fast: %s of %s: %d files", kind, pv, files)
	h.call("status").Says(want)
	return files
}

// worksOnNothing waits until nothing is under way.
func (h *host) worksOnNothing(kind string) {
	h.w.Helper()
	running := fmt.Sprintf("\nhostpath_provisioner_work_running{kind=%q,pool=\"fast\"} 0\n", kind)
	h.w.Eventually("nothing is under way", func() bool {
		return len(h.status().Work) == 0 && strings.Contains(h.scraped(), running)
	})
}

// How far a copy and a purge are is seen while they are under way, and not any more after that.
func TestWorkUnderWay(t *testing.T) {
	t.Parallel()
	t.Run("copy", func(t *testing.T) {
		w := newEnvironment(t)
		h := w.newHostOn(hosttest.Mkfs(w, "ext4", 96), "a", `clones = "copy"`).serving().run()
		class := w.Class("c", immediate)
		below := filepath.Join(h.mount, w.bound("data", class, "10Mi").Name, "below")
		w.Must(os.Mkdir(below, 0o755))
		for i := range 100 {
			w.Must(os.WriteFile(filepath.Join(below, fmt.Sprint(i)), []byte("data"), 0o644))
		}
		// The copy waits at this file: a process has a lease on it.
		held := need(os.OpenFile(filepath.Join(below, "50"), os.O_RDWR, 0))(w)
		defer held.Close()
		need(unix.FcntlInt(held.Fd(), unix.F_SETLEASE, unix.F_WRLCK))(w)
		clone := w.claim("clone", class, "10Mi", from("data"))
		if n := h.worksOn("clone", "pvc-"+string(clone.UID)); n < 2 || n > 101 {
			t.Errorf("%d files are copied, want 2 directories and up to 99 files", n)
		}
		w.Must(held.Close())
		w.Bound("clone")
		h.worksOnNothing("clone")
	})
	t.Run("purge", func(t *testing.T) {
		w := newEnvironment(t)
		mount, fs := onFUSE(t, false)
		h := w.newNodes(mount, []string{"a"})[0].host.serving().run()
		pv := w.bound("data", w.Class("c", immediate), "1Mi")
		for i := range 1100 {
			w.Must(os.WriteFile(filepath.Join(mount, pv.Name, fmt.Sprint(i)), nil, 0o600))
		}
		// After a pass over the directory its owner is shut out of it, and the purge waits there.
		fs.Hold(hungfs.Setattr)
		defer fs.Resume()
		w.DeleteClaim("data")
		fs.AwaitHeld()
		if n := h.worksOn("purge", pv.Name); n > 1100 {
			t.Errorf("%d files are removed of 1,100", n)
		}
		fs.Resume()
		w.Must(w.WaitVolumeGone(w.Soon(), pv.Name))
		h.worksOnNothing("purge")
	})
}
