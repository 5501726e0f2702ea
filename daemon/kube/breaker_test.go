package kube

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
)

// While the server is away one informer at a time sends requests, and all go on when one has a response.
func TestOneInformerProbes(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	g.open()
	c, w := newClient(t, Options{Kubeconfig: g.kubeconfig(t), Self: plan.Self{Node: "node-a"}})
	claims, nodes := running(t, c.Claims(nil, nil)), running(t, c.OwnNode(nil))
	volumes, classes := running(t, c.Volumes("node-a", nil).WatchList()), running(t, c.Classes(nil))
	watched := func() bool {
		return claims.Watched() && nodes.Watched() && volumes.Watched() && classes.Watched()
	}
	eventually(t, "all watches", watched)
	var mu sync.Mutex
	tries, flying, most := 0, 0, 0
	w.intercept(func(*http.Request) (*http.Response, error) {
		mu.Lock()
		tries, flying = tries+1, flying+1
		most = max(most, flying)
		mu.Unlock()
		time.Sleep(time.Second) // as a connection that takes its time
		mu.Lock()
		defer mu.Unlock()
		flying--
		return nil, errors.New("connection refused")
	})
	g.shut()
	eventually(t, "four tries", func() bool { mu.Lock(); defer mu.Unlock(); return tries >= 4 })
	w.intercept(nil)
	if most > 1 {
		t.Errorf("%d informers sent requests at the same time", most)
	}
	g.open()
	eventually(t, "all watches again", watched)
}

func TestBreaker(t *testing.T) {
	broken := errors.New("connection refused")
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))
	var b breaker
	entered := func() bool {
		done := make(chan struct{})
		go func() { b.wait(t.Context()); close(done) }()
		select {
		case <-done:
			return true
		case <-time.After(20 * time.Millisecond):
			return false
		}
	}
	b.done(refused) // the server's own response does not open the breaker
	if !entered() {
		t.Error("one resource's 403 keeps the informer of another from its requests")
	}
	b.done(broken)
	if entered() {
		t.Error("the breaker is open, and an informer does not wait")
	}
	b.mu.Lock()
	b.retryAt = time.Now()
	b.mu.Unlock()
	eventually(t, "one informer probes", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.probe != nil })
	if entered() {
		t.Error("two probe at the same time")
	}
	b.done(refused) // a server that has just started
	if entered() {
		t.Error("an informer does not wait after the 403 of a server that came back")
	}
	b.mu.Lock()
	b.retryAt = time.Now()
	b.mu.Unlock()
	eventually(t, "one informer probes again", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.probe != nil })
	for range 2 { // two informers end without an error; one of those that wait is next each time
		b.done(nil)
	}
	if !entered() {
		t.Error("an informer that ended without an error keeps another one from its probe")
	}
	b.responded()
	if !entered() {
		t.Error("the server responded, and an informer waits")
	}
}
