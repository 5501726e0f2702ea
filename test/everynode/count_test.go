package everynode

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// counter is a proxy before the API server that counts requests by what they are about.
type counter struct {
	mu     sync.Mutex
	counts map[string]int // "POST persistentvolumes"
	paths  map[string]int
	proxy  http.Handler
}

// counted puts a counter between this environment's daemons and the API server.
func (w *environment) counted() *counter {
	w.Helper()
	c := &counter{counts: map[string]int{}, paths: map[string]int{}}
	w.address, w.authority = w.Proxied(func(server http.Handler) http.Handler { c.proxy = server; return c })
	return c
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.counts[about(r)]++
	c.paths[r.Method+" "+r.URL.Path]++
	c.mu.Unlock()
	c.proxy.ServeHTTP(w, r)
}

// about is the verb and the resource. Lists and watches are apart from reads of one object.
func about(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	for i, part := range parts {
		switch part {
		case "persistentvolumes", "persistentvolumeclaims", "nodes", "leases", "events", "storageclasses":
			verb := r.Method
			if verb == http.MethodGet && i == len(parts)-1 {
				verb = "LIST"
			}
			if r.URL.Query().Get("watch") != "" {
				verb = "WATCH"
			}
			return verb + " " + part
		}
	}
	return r.Method + " " + r.URL.Path
}

// asked reports whether a daemon read this volume from the API.
func (c *counter) asked(pv string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paths["GET /api/v1/persistentvolumes/"+pv] > 0
}

// take returns what was counted since the last call, without watches, which last.
func (c *counter) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.counts
	c.counts = map[string]int{}
	delete(taken, "WATCH persistentvolumes")
	delete(taken, "WATCH persistentvolumeclaims")
	delete(taken, "WATCH nodes")
	delete(taken, "WATCH storageclasses")
	return taken
}

func words(counts map[string]int) string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%s %d", what, counts[what]))
	}
	return strings.Join(all, ", ")
}

// Fifty daemons, ten Immediate claims: how many requests it takes until each node has each
// directory, and until all is gone again. It fails where the writes grow with the nodes, or the
// reads before a removal are not those that each node must make.
func TestFiftyNodes(t *testing.T) {
	const nodes, claims = 50, 10
	w := newEnvironment(t)
	counter := w.counted()
	hosts := make([]*host, nodes)
	for i := range hosts {
		hosts[i] = w.host(fmt.Sprint("n", i), setting{tmpfs: true})
		w.Confine(hosts[i].Daemon)
		w.Must(hosts[i].Start())
	}
	for _, h := range hosts {
		w.Must(h.WaitReady(w.Soon(), 1))
		w.Cleanup(h.Kill)
	}
	class := w.Class("c", immediate)
	w.onEach(hosts) // the class has reached all nodes
	warm := w.claim("warm", class, "1Mi")
	w.onEach(hosts, warm)
	w.DeleteClaim("warm")
	w.onEach(hosts)
	w.Must(w.WaitVolumeGone(w.Soon(), warm))

	counter.take()
	var pvs []string
	for i := range claims {
		pvs = append(pvs, w.made(fmt.Sprint("data-", i), class))
	}
	w.onEach(hosts, pvs...)
	made := counter.take()
	t.Logf("%d claims on %d nodes made with: %s", claims, nodes, words(made))
	if n := made["POST persistentvolumes"]; n > 8*claims {
		t.Errorf("%d claims took %d creates", claims, n)
	}
	if n := made["GET persistentvolumes"] + made["GET persistentvolumeclaims"]; n > 8*claims {
		t.Errorf("%d claims took %d reads of one object: followers should need none", claims, n)
	}

	for i := range claims {
		w.DeleteClaim(fmt.Sprint("data-", i))
	}
	w.onEach(hosts)
	w.Gone(pvs...)
	gone := counter.take()
	t.Logf("%d claims on %d nodes removed with: %s", claims, nodes, words(gone))
	// On a busy host more nodes come to the end of the delays after which they delete the object and
	// write the tombstone: without delays each of them would.
	if n := gone["DELETE persistentvolumes"]; n > nodes*claims/3 {
		t.Errorf("%d claims took %d deletes", claims, n)
	}
	// Each does so once, and a second time where its response came late.
	tombstones := gone["POST leases"]
	if tombstones > nodes*claims*5/4 {
		t.Errorf("%d tombstones of %d claims were written", tombstones, claims)
	}
	for _, what := range []string{"GET persistentvolumes", "GET persistentvolumeclaims"} {
		switch n := gone[what]; {
		case n < nodes*claims:
			t.Errorf("%s %d: a node removed something without asking", what, n)
		case n > nodes*claims*7/4+3*tombstones: // who writes one looks before that, and again later
			t.Errorf("%s %d: the nodes asked again and again", what, n)
		}
	}
}

// onEach waits until every host has exactly these volumes.
func (w *environment) onEach(hosts []*host, pvs ...string) {
	w.Helper()
	for _, h := range hosts {
		h.wantTree(pool.Of(pvs...)...)
	}
}
