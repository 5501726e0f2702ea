package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// door is a proxy before the API server that does something when a daemon reads a lease, before the
// read is passed on, or serves other requests by itself.
type door struct {
	proxy http.Handler
	serve atomic.Value // func(http.ResponseWriter, *http.Request) (done bool)

	mu     sync.Mutex
	onRead func() (done bool) // nil: nothing, or it was done
}

// behindDoor lets a host's daemon talk to the API server through a door.
func (w *environment) behindDoor(n *host) *door {
	w.Helper()
	d := &door{}
	n.through(w.Proxied(func(server http.Handler) http.Handler { d.proxy = server; return d }))
	return d
}

// hostBehindDoor is a test's environment with a host behind a door, whose daemon does not run yet.
func hostBehindDoor(t *testing.T) (w *environment, h *host, d *door) {
	t.Helper()
	w = newEnvironment(t)
	h = w.newHost("a")
	return w, h, w.behindDoor(h)
}

// through has the daemon reach the API server by a proxy.
func (h *host) through(address string, authority []byte) {
	h.w.Helper()
	file := h.Path("kubeconfig")
	h.w.Must(cluster.Redirect(file, file, address, authority))
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if serve, is := d.serve.Load().(func(http.ResponseWriter, *http.Request) bool); is && serve(w, r) {
		return
	}
	if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/leases/") {
		d.mu.Lock()
		if d.onRead != nil && d.onRead() {
			d.onRead = nil
		}
		d.mu.Unlock()
	}
	d.proxy.ServeHTTP(w, r)
}

// instead sets what serves each request that it returns true for.
func (d *door) instead(serve func(http.ResponseWriter, *http.Request) (done bool)) {
	d.serve.Store(serve)
}

const volumesAt = "/persistentvolumes" // where volumes are created

// on serves the requests of a method whose path ends so.
func (d *door) on(
	method, path string, serve func(http.ResponseWriter, *http.Request) (done bool),
) {
	d.instead(func(w http.ResponseWriter, r *http.Request) bool {
		return r.Method == method && strings.HasSuffix(r.URL.Path, path) && serve(w, r)
	})
}

// next sets what happens with the next reads of a lease, until it was done.
func (d *door) next(do func() bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.onRead = do
}

// handOver gives the pool's lease to a holder, in a new term.
func (w *environment) handOver(holder string) {
	w.Helper()
	leases := w.leases()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the daemon renews it meanwhile
		now, err := leases.Get(w.Ctx, "fast."+w.Provisioner, metav1.GetOptions{})
		if err != nil {
			return err
		}
		term := *now.Spec.LeaseTransitions + 1
		now.Spec.HolderIdentity, now.Spec.LeaseTransitions = &holder, &term
		_, err = leases.Update(w.Ctx, now, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		w.Error(err)
	}
}

// The lease goes to another daemon while the holder removes a volume: before it moves the directory
// away, and after that. It asks the API each time and leaves everything as it is: what is in the
// trash can be put back as long as its object is there. With the lease again it goes on.
func TestSharedLeaseLostInTheMiddle(t *testing.T) {
	w := newEnvironment(t)
	n := w.sharedBy([]string{"a"})[0]
	door := w.behindDoor(n.host)
	n.run()
	class := w.Class("c", immediate)
	for name, inTrash := range map[string]bool{"before": false, "after": true} {
		w.holder([]*node{n}, anyNode)
		pv := w.bound(name, class, "1Mi")
		w.Must(os.WriteFile(filepath.Join(cluster.PathOf(pv), "data"), []byte(name), 0o600))
		lost := make(chan struct{})
		door.next(func() bool {
			if _, err := os.Stat(filepath.Join(n.ours("trash"), pv.Name)); inTrash != (err == nil) {
				return false
			}
			w.handOver("another_1")
			close(lost)
			return true
		})
		w.DeleteClaim(name)
		gone := make(chan error, 1)
		go func() { gone <- w.WaitVolumeGone(w.Ctx, pv.Name) }()
		select {
		case <-lost:
		case err := <-gone:
			t.Fatalf("%s: the volume was removed and the API not asked for the lease: %v", name, err)
		}
		w.Eventually(n.node+" says that another works in the pool", func() bool {
			out, _ := n.Call("status")
			return strings.Contains(out, "leader another") || strings.Contains(out, "another_1")
		})
		want := pool.Of(pv.Name)
		if inTrash {
			want = []string{"ours/trash/" + pv.Name, "ours/volumes/" + pv.Name + ".json"}
		}
		slices.Sort(want)
		if got := n.tree(); !slices.Equal(got, want) {
			t.Errorf("%s: the pool has %q, want %q", name, got, want)
		}
		if now := w.Volume(pv.Name); len(now.Finalizers) == 0 || now.DeletionTimestamp != nil {
			t.Errorf("%s: the object was let go: %v", name, now.Finalizers)
		}
		w.handOver("") // its holder leaves it
		w.Must(<-gone)
		n.wantTree()
	}
}

// A daemon decides to make a claim's volume and is paused. Another one takes the lease, makes the
// volume, and removes it when the claim is gone. In the middle of that the first one wakes and goes
// on: it takes nothing out of the trash.
func TestSharedPausedBeforeMaking(t *testing.T) {
	// Alone: for a claim of another test the daemon may count the nodes, too, and it does that once
	// a minute.
	w := ownEnvironment(t)
	nodes := w.sharedBy([]string{"a", "b"})
	late, other := nodes[0], nodes[1]
	ends := make(chan struct{})
	defer close(ends)
	deciding, removing, goOn := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	var made atomic.Bool
	w.behindDoor(late.host).instead(func(_ http.ResponseWriter, r *http.Request) bool {
		if !made.Load() || r.Method != http.MethodGet || r.URL.Path != "/api/v1/nodes" || r.URL.Query().Get("limit") != "1" {
			return false
		}
		deciding <- struct{}{}
		<-ends
		return true
	})
	w.behindDoor(other.host).instead(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch && strings.HasPrefix(r.URL.Path, "/api/v1/persistentvolumes/") {
			removing <- struct{}{}
			<-goOn
		}
		return false
	})
	late.run()
	w.holder(nodes[:1], anyNode)
	class := w.Class("c", immediate)
	made.Store(true)
	w.claim("data", class, "1Mi")
	fixture.Receive(w.Environment, deciding, "the daemon counts the nodes, the last that it asks for")
	w.Must(late.Signal(syscall.SIGSTOP))
	other.run()
	pv := w.Bound("data")
	w.Must(os.WriteFile(filepath.Join(cluster.PathOf(pv), "data"), []byte("data"), 0o600))
	w.DeleteClaim("data")
	fixture.Receive(w.Environment, removing, "the other daemon removes the volume")
	w.Must(late.Signal(syscall.SIGCONT))
	// It goes on, and finds the volume in the trash; or it learns first that it leads no more, or
	// that the claim is gone, and drops that without a word.
	w.Must(harness.Eventually(w.Soon(), func() bool {
		_, err := os.Stat(cluster.PathOf(pv))
		leaves := strings.Contains(late.Log(), "leaves a claim whose volume was removed meanwhile")
		status, _ := late.Call("status")
		return err == nil || leaves || strings.Contains(status, "leader "+other.node)
	}))
	close(goOn)
	w.Must(w.WaitVolumeGone(w.Soon(), pv.Name))
	nodes[0].wantTree(pool.Of()...)
}
