package e2e

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// cable is a daemon's way to the API server, which can be cut: then its watches end, too.
type cable struct {
	door *door
	now  atomic.Pointer[context.Context]
	cut  context.CancelFunc
}

func (w *environment) cable(h *host) *cable {
	w.Helper()
	c := &cable{door: w.behindDoor(h)}
	c.mend()
	c.door.instead(func(rw http.ResponseWriter, r *http.Request) bool {
		whole := *c.now.Load()
		if whole.Err() != nil {
			panic(http.ErrAbortHandler)
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(whole, cancel)()
		c.door.proxy.ServeHTTP(rw, r.WithContext(ctx))
		return true
	})
	return c
}

func (c *cable) mend() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cut = cancel
	c.now.Store(&ctx)
}

// onAnotherMachine has a host's daemon see what is mounted now, and no locks of other hosts.
func (h *host) onAnotherMachine() *host {
	h.w.Helper()
	h.Daemon = need(rig.New(rig.Options{
		Dir: h.Path(), Config: h.config(), Wrap: newNamespace(h.w.T).Enter(),
	}))(h.w)
	return h
}

// The former node's daemon lives and is cut off from the API, like its kubelet, when the volumes
// move: it still has its disk, of which the new node has a copy, or its disk is in the new node.
// However often the call is killed, each claim is bound once, to the volume on the new node; the
// old daemon does nothing to either disk, also not when it reaches the API again.
func TestImportBesideOldDaemon(t *testing.T) {
	t.Parallel()
	for name, copied := range map[string]bool{"gone": false, "copied": true} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			a, b := w.newHost("a").quiet(), w.newHost("b").quiet()
			cable, class := w.cable(a), w.Class("c", immediate)
			a.run()
			data, other := a.made("data", class), a.made("other", class)
			tree := a.tree()
			cable.cut()
			w.Must(w.notReady(a.node))
			a.silent()
			disk := a.image
			if copied {
				hosttest.Run(t, "fsfreeze", "--freeze", a.mount)
				disk = a.image.Copy(t)
				hosttest.Run(t, "fsfreeze", "--unfreeze", a.mount)
			} else {
				hosttest.Unmount(t, a.mount)
			}
			b.plugs(disk).onAnotherMachine().run()
			k := w.killer()
			k.toTheEnd(b, "import", "fast", "--from-node", a.node)
			k.diedAt(2 * enough)
			moved := b.follows("data")
			b.follows("other")
			file := filepath.Join(b.mount, data.Name, "data")
			w.Must(os.WriteFile(file, []byte("written on b"), 0o600))

			cable.mend()
			w.Must(a.WaitReady(w.Soon(), 1)) // and the API read
			if copied {
				a.made("later", class)
				later := w.Bound("later").Name
				a.wantTree(slices.Concat(tree, pool.Of(later))...)
			}
			w.Removes("other", other.Name)
			w.vanishes(filepath.Join(b.mount, other.Name))
			if copied {
				a.wantData(filepath.Join(a.mount, other.Name), "other")
				a.wantData(filepath.Join(a.mount, data.Name), "data")
			}
			now := w.Bound("data")
			if text, err := os.ReadFile(file); now.UID != moved.UID || string(text) != "written on b" {
				t.Errorf("volume %+v has %q, %v", now.ObjectMeta, text, err)
			}
		})
	}
}
