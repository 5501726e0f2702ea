package e2e

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/alerts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hungfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// records begins with a daemon that serves its metrics and is well. It waits until the volumes of
// pool fast were counted, which is after the start.
func (h *host) records(alert string) *alerts.Watch {
	h.w.Helper()
	return h.w.recordsOf(alert, h.scraped, func(now alerts.Samples) bool {
		return now[`hostpath_provisioner_volumes{pool="fast",state="missing"}`] != ""
	})
}

// recordsOf begins once the page has what first wants.
func (w *environment) recordsOf(alert string, page func() string,
	first func(alerts.Samples) bool) *alerts.Watch {
	w.Helper()
	test, _, _ := strings.Cut(w.Name(), "/")
	by := test + " (test/e2e) records both: go test -update"
	return alerts.NewWatch(w, by, rig.Root(), alert, page, first)
}

// The disk of the state directory does not respond: the loop of the pool waits for it without an
// end, so its checks stand still and nothing is provisioned. It says so, also to the cluster. When
// the disk responds again, all goes on. Under systemd the watchdog ends such a daemon.
func TestStateDirectoryHangs(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a").serving()
	fs := hungfs.Mount(t, h.Path("state"))
	h.run()
	admin, class := w.killer().kubeconfig(), w.Class("c", immediate)
	h.made("before", class)
	ready, checks := h.records("NotReady"), h.records("ChecksStandStill")
	// The configuration is read again meanwhile, and asks for the directory.
	w.Must(os.Chtimes(h.Path("etc", "config.toml"), time.Time{}, time.Now()))
	fs.Hold(hungfs.Lookup, hungfs.Getattr, hungfs.Open)
	defer fs.Resume()
	fs.AwaitHeld()
	checks.Mark()
	h.tells("\nhostpath_provisioner_ready 0\n")
	ready.Fires()
	checks.Fires()
	const stands = `pool "fast": no progress of its loop for `
	h.serves("/healthz", stands)
	w.Must(h.WaitStatus(w.Soon(), stands))
	h.call("status").Ends(1, "not ready", stands)
	h.shows(admin, "nodes", "node "+h.node+": NotAnswering: "+stands)
	fs.Resume()
	ready.Resolves()
	checks.Resolves()
	h.made("after", class)
}

// The API server takes no events for a while, and thousands of claims of several tenants are to be
// told why they wait: the oldest warnings are dropped, and that is counted.
func TestEventsAreDropped(t *testing.T) {
	w := ownEnvironment(t)
	h := w.newHost("a").serving()
	door := w.behindDoor(h)
	h.run()
	class := w.Class("c", immediate)
	h.made("before", class)
	dropped := h.records("EventsDropped")
	held := make(chan struct{})
	var once sync.Once
	open := func() { once.Do(func() { close(held) }) }
	defer open()
	door.on(http.MethodPost, "/events", func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-held:
		case <-r.Context().Done():
		}
		return false
	})
	w.manyRefused(h.node, class)
	w.Eventually("warnings are dropped", func() bool {
		const none = "\nhostpath_provisioner_events_dropped_total{type=\"Warning\"} 0\n"
		return !strings.Contains(h.scraped(), none)
	})
	dropped.Fires()
	open()
	dropped.Resolves()
}

// manyRefused makes more claims than events may be pending (4096), none of which fits. A namespace
// has a thousand warnings at once at most.
func (w *environment) manyRefused(node, class string) {
	w.Helper()
	const tenants, each = 5, 850
	made := make(chan error, tenants*each)
	for range tenants {
		namespace := need(w.NewNamespace(w.Ctx, "e2e-tenant-"))(w)
		claims := w.Client().CoreV1().PersistentVolumeClaims(namespace)
		go func() {
			for i := range each {
				c := cluster.Claim(namespace, fmt.Sprint("c", i), class, "1Ti")
				annotate(provisionOnNode, node)(c)
				_, err := claims.Create(w.Ctx, c, metav1.CreateOptions{})
				made <- err
			}
		}()
	}
	for range tenants * each {
		w.Must(<-made)
	}
}
