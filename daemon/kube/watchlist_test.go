package kube

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// whole is an informer of the claims of a namespace that reads them with the watch.
func whole(c *Client, ns string, d *changeLog) *Informer[*corev1.PersistentVolumeClaim] {
	return c.Claims(in(ns), d.told).WatchList()
}

// One request is the list and the watch, also when it has to be read again, and nothing is missed
// or told twice.
func TestWatchList(t *testing.T) {
	if !plane.WatchLists(t) {
		t.Skip("WatchList is of Kubernetes 1.34, and of 1.32")
	}
	ns, d := namespace(t), &changeLog{}
	newClaim(t, plane, ns, "early", "1")
	newClaim(t, plane, ns, "goes", "1")
	newClaim(t, plane, ns, "other", "foreign")
	c, w := newClient(t, Options{})
	s := running(t, whole(c, ns, d))
	d.expect(t, "+early 1", "+goes 1") // told before Synced
	setMark(t, ns, "early", "2")
	d.expect(t, "+early 1", "+goes 1", "~early 2")
	w.intercept(func(*http.Request) (*http.Response, error) { return nil, http.ErrServerClosed })
	s.Relist()
	eventually(t, "the end of the watch", func() bool { return !s.Watched() })
	deleteClaim(t, plane, ns, "goes")
	newClaim(t, plane, ns, "late", "1")
	setMark(t, ns, "early", "foreign")
	w.forget()
	w.intercept(nil)
	d.expect(t, "+early 1", "+goes 1", "~early 2", "-early 2", "+late 1", "-goes 1")
	newClaim(t, plane, ns, "last", "1")
	d.expect(t, "+early 1", "+goes 1", "~early 2", "-early 2", "+late 1", "-goes 1", "+last 1")
	var served int
	for _, line := range w.requests() {
		if strings.Contains(line, "limit") {
			t.Errorf("a list: %q", line)
		}
		served++
	}
	if served < 1 || s.noWatchList {
		t.Errorf("%d watches; refused: %v", served, s.noWatchList)
	}
}

// unknowing is the real server, as if it did not know watch-lists.
type unknowing struct {
	*source
	refuses      bool // or sends no end
	asked, lists atomic.Int32
}

func (u *unknowing) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	u.lists.Add(1)
	return u.source.List(ctx, o)
}

func (u *unknowing) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents == nil {
		return u.source.Watch(ctx, o)
	}
	u.asked.Add(1)
	if u.refuses {
		o.ResourceVersionMatch = "" // to which the server responds as to options that it does not know
	}
	w, err := u.source.Watch(ctx, o)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) { return e, e.Type != watch.Bookmark }), nil
}

// A server that does not know watch-lists refuses them, or sends no end: the informer lists
// instead, and requests no other watch-list.
func TestWatchListUnknown(t *testing.T) {
	t.Parallel()
	for name, refuses := range map[string]bool{"refused": true, "without an end": false} {
		t.Run(name, func(t *testing.T) {
			ns, d := namespace(t), &changeLog{}
			newClaim(t, plane, ns, "early", "1")
			c, _ := newClient(t, Options{})
			server := &unknowing{source: claimKind.source(c, selection{}), refuses: refuses}
			s := NewInformer(server, in(ns), d.told).WatchList()
			s.timings.response = 2 * time.Second
			running(t, s)
			newClaim(t, plane, ns, "late", "1")
			d.expect(t, "+early 1", "+late 1")
			s.Relist()
			deleteClaim(t, plane, ns, "early")
			d.expect(t, "+early 1", "+late 1", "-early 1")
			eventually(t, "the list after Refresh", func() bool { return server.lists.Load() == 2 })
			if n := server.asked.Load(); n != 1 {
				t.Errorf("%d watch-lists, want one", n)
			}
		})
	}
}

// What changes while the list is read comes after it, and counts.
func TestWatchListChangesMeanwhile(t *testing.T) {
	d := &changeLog{}
	s := NewInformer(nil, in("ns"), d.told)
	events := watch.NewFakeWithChanSize(10, false)
	claim := func(name, mark, version string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: "1", ResourceVersion: version, Annotations: map[string]string{markKey: mark}}}
	}
	s.store(claim("old", "1", "3"))
	events.Add(claim("a", "1", "9"))
	events.Add(claim("b", "1", "4")) // older than the one before: the order is that of the keys
	events.Add(claim("c", "1", "5"))
	events.Delete(claim("a", "1", "11"))
	events.Modify(claim("b", "foreign", "12"))
	events.Action(watch.Bookmark, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "12"}})
	select {
	case <-s.Synced():
		t.Error("synced before the end")
	default:
	}
	end := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "13", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
	events.Action(watch.Bookmark, end)
	ended, err := s.readInitialEvents(t.Context(), events)
	if !ended || err != nil || s.version != "13" || names(s) != "c" {
		t.Errorf("ended %v, %v, at %q; kept %q, want c", ended, err, s.version, names(s))
	}
	<-s.Synced()
	d.expect(t, "+old 1", "+a 1", "+b 1", "+c 1", "-a 1", "-b 1", "-old 1")
}
