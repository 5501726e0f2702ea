package e2e

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// The last response of a removal is lost, and the API responds to nothing about the volume before
// the daemon is told to end: it finds out by then that the object went, and the next daemon has
// nothing to keep.
func TestStoppedAfterALostResponse(t *testing.T) {
	w, h, door := hostBehindDoor(t)
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
	w.Removes("data", pv.Name)
	fixture.Receive(w.Environment, lost, "the daemon deletes the object")
	w.Must(h.Signal(syscall.SIGTERM))
	fixture.Receive(w.Environment, h.Exited(), "the daemon ends")
	if _, err := os.Lstat(filepath.Join(h.ours("trash"), pv.Name)); !os.IsNotExist(err) {
		t.Errorf("the directory is whole in the trash: %v; the log:\n%s", err, h.Log())
	}
	w.Must(h.Start())
	h.wantTree()
}

// The pool goes away between the daemon's request to delete an object and the response, and is back
// before the object is gone, which another controller holds with a finalizer of its own. The files
// need not wait for that, as they do not where the pool stays.
func TestUnmountedBeforeTheResponse(t *testing.T) {
	w, h, door := hostBehindDoor(t)
	h.run()
	pv := h.made("data", w.Class("c", immediate))
	w.PatchVolume(pv.Name, types.JSONPatchType,
		`[{"op":"add","path":"/metadata/finalizers/-","value":"e2e.example/held"}]`)
	deleted, closed, once := make(chan struct{}), make(chan struct{}), sync.Once{}
	object := "/persistentvolumes/" + pv.Name
	door.on(http.MethodDelete, object, func(rw http.ResponseWriter, r *http.Request) bool {
		response := httptest.NewRecorder()
		door.proxy.ServeHTTP(response, r)
		once.Do(func() { close(deleted) })
		<-closed
		maps.Copy(rw.Header(), response.Header())
		rw.WriteHeader(response.Code)
		_, _ = rw.Write(response.Body.Bytes()) // a daemon that has gone away needs no response
		return true
	})
	w.DeleteClaim("data")
	fixture.Receive(w.Environment, deleted, "the daemon deletes the object")
	hosttest.UnmountLazy(t, h.mount)
	w.Must(h.WaitStatus(w.Soon(), "pool fast is closed"))
	close(closed)
	h.image.Mount(t, h.mount)
	h.wantTree()
	if now := w.Volume(pv.Name); now.DeletionTimestamp == nil {
		t.Errorf("the object is not being deleted: %v", now)
	}
	w.PatchVolume(pv.Name, types.MergePatchType, `{"metadata":{"finalizers":null}}`)
	w.Must(w.WaitVolumeGone(w.Soon(), pv.Name))
}
