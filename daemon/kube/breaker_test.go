package kube

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// While the server is away one informer at a time sends requests, and all go on when one has a
// response.
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

// An informer waits while the breaker is open. One at a time probes, and a response lets all go on.
func TestBreaker(t *testing.T) { synctest.Test(t, testBreaker) }

func testBreaker(t *testing.T) {
	broken := errors.New("connection refused")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))
	ctx, cancel := context.WithCancel(t.Context())
	defer synctest.Wait()
	defer cancel()
	var b breaker
	// mayAsk reports whether an informer need not wait. One that has to goes on waiting.
	mayAsk := func() bool {
		var went atomic.Bool
		go func() { b.wait(ctx); went.Store(true) }()
		synctest.Wait()
		return went.Load()
	}
	done := func(err error) { b.done(err); synctest.Wait() }
	retryAt := func(at time.Time) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.retryAt = at
	}
	probing := func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.probe != nil }

	done(forbidden) // the server's own response does not open the breaker
	if !mayAsk() {
		t.Error("one resource's 403 keeps the informer of another from its requests")
	}
	done(broken)
	if mayAsk() {
		t.Error("the breaker is open, and an informer does not wait")
	}
	retryAt(time.Now())
	eventually(t, "one informer probes", probing)
	if mayAsk() {
		t.Error("two probe at the same time")
	}
	done(forbidden) // a server that has just started
	if mayAsk() {
		t.Error("an informer does not wait after the 403 of a server that came back")
	}
	retryAt(time.Now())
	eventually(t, "one informer probes again", probing)
	for range 2 { // it and the one that waits end without an error
		done(nil)
	}
	if !mayAsk() {
		t.Error("an informer that ended without an error keeps another one from its probe")
	}
	retryAt(time.Now().Add(time.Hour))
	b.responded()
	if !mayAsk() {
		t.Error("the server responded, and an informer waits")
	}

	for range 2 { // watches end before their time
		retryAt(time.Now())
		b.suspect()
		done(nil)
	}
	if !mayAsk() {
		t.Error("no informer probes after a watch ended before its time")
	}
	if mayAsk() {
		t.Error("two probe after a watch ended before its time")
	}
	b.responded()
}
