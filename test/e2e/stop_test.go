package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
)

// The last response of a removal is lost, and the API responds to nothing about the volume before the daemon is told to
// end: it finds out by then that the object went, and the next daemon has nothing to keep.
func TestStoppedAfterALostResponse(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a")
	door := w.behindDoor(h)
	h.run()
	pv := h.made("data", w.Class("c", immediate))
	lost, once := make(chan struct{}), sync.Once{}
	ending := func() bool { return strings.Contains(h.Log(), "reason=Stopping") }
	door.instead(func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/persistentvolumes/"+pv.Name) || ending() {
			return false
		}
		select {
		case <-lost:
			http.Error(rw, "away", http.StatusServiceUnavailable)
		default:
			if r.Method != http.MethodDelete {
				return false
			}
			door.proxy.ServeHTTP(httptest.NewRecorder(), r)
			once.Do(func() { close(lost) })
			panic(http.ErrAbortHandler)
		}
		return true
	})
	w.DeleteClaim("data")
	w.Must(w.WaitVolumeGone(w.Soon(), pv.Name))
	fixture.Receive(w.Environment, lost, "the daemon deletes the object")
	w.Must(h.Signal(syscall.SIGTERM))
	fixture.Receive(w.Environment, h.Exited(), "the daemon ends")
	if _, err := os.Lstat(filepath.Join(h.ours("trash"), pv.Name)); !os.IsNotExist(err) {
		t.Errorf("the directory is whole in the trash: %v; the log:\n%s", err, h.Log())
	}
	w.Must(h.Start())
	h.wantTree()
}
