package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func refOf(c *corev1.PersistentVolumeClaim) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID}
}

// said is each event of ours in the namespace.
func said(t *testing.T, ns string) []string {
	t.Helper()
	all, err := plane.Client().CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range all.Items {
		if e.Source.Component == component && e.Source.Host == "node-a" && e.ReportingController == component {
			lines = append(lines, fmt.Sprintf("%s/%s %s %s %q %d", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Type, e.Reason, e.Message, e.Count))
		}
	}
	slices.Sort(lines)
	return lines
}

func expectSaid(t *testing.T, ns string, want ...string) {
	t.Helper()
	eventually(t, "events "+strings.Join(want, "; "), func() bool { return len(said(t, ns)) >= len(want) })
	if got := said(t, ns); !slices.Equal(got, want) {
		t.Errorf("events:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func writing(t *testing.T, c *Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { c.RunEvents(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
}

func TestEvents(t *testing.T) {
	ctx, ns := t.Context(), namespace(t)
	claim := refOf(newClaim(t, plane, ns, "claim", "1"))
	c, w := newClient(t, Options{})
	writing(t, c)
	c.Event(claim, corev1.EventTypeWarning, "PoolClosed", "pool fast: it is not mounted")
	expectSaid(t, ns, `PersistentVolumeClaim/claim Warning PoolClosed "pool fast: it is not mounted" 1`)
	if n := w.count("events"); n != 1 {
		t.Errorf("requests: %q, want one", w.requests())
	}
	for range 3 { // a repeat waits for its minute
		c.Event(claim, corev1.EventTypeWarning, "PoolClosed", "pool fast: it is not mounted")
	}
	c.Event(claim, corev1.EventTypeNormal, "Provisioned", "volume pvc-1")
	expectSaid(t, ns, `PersistentVolumeClaim/claim Normal Provisioned "volume pvc-1" 1`,
		`PersistentVolumeClaim/claim Warning PoolClosed "pool fast: it is not mounted" 1`)
	if err := c.Flush(ctx); err != nil { // but not at the end
		t.Fatal(err)
	}
	expectSaid(t, ns, `PersistentVolumeClaim/claim Normal Provisioned "volume pvc-1" 1`,
		`PersistentVolumeClaim/claim Warning PoolClosed "pool fast: it is not mounted" 4`)
	if n := w.count("events"); n != 3 {
		t.Errorf("requests: %q, want two creations and a patch", w.requests())
	}

	next, _ := newClient(t, Options{}) // the next process goes on counting
	next.Event(claim, corev1.EventTypeWarning, "PoolClosed", "pool fast: it is not mounted")
	if err := next.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	expectSaid(t, ns, `PersistentVolumeClaim/claim Normal Provisioned "volume pvc-1" 1`,
		`PersistentVolumeClaim/claim Warning PoolClosed "pool fast: it is not mounted" 5`)
}

// An event that the API server has forgotten (after an hour) is made again, with the whole count.
func TestForgottenEvent(t *testing.T) {
	ctx, ns := t.Context(), namespace(t)
	claim := refOf(newClaim(t, plane, ns, "claim", "1"))
	c, _ := newClient(t, Options{})
	for range 2 {
		c.Event(claim, corev1.EventTypeWarning, "PoolClosed", "closed")
		if err := c.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		expectedCount := said(t, ns)
		if len(expectedCount) != 1 {
			t.Fatalf("events: %q", expectedCount)
		}
		if err := plane.Client().CoreV1().Events(ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.Event(claim, corev1.EventTypeWarning, "PoolClosed", "closed")
	if err := c.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	expectSaid(t, ns, `PersistentVolumeClaim/claim Warning PoolClosed "closed" 3`)
}

// Events on what has no namespace are in the default one; a long name and a long message fit.
func TestEventsOfAllShapes(t *testing.T) {
	ctx := t.Context()
	c, _ := newClient(t, Options{})
	node := corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: strings.Repeat("node-name.", 25) + "a", UID: "shapes"}
	c.Event(node, corev1.EventTypeWarning, "PoolClosed", strings.Repeat("ä", 2000))
	if err := c.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	got := slices.DeleteFunc(said(t, "default"), func(s string) bool { return !strings.HasPrefix(s, "Node/node-name.") })
	want := fmt.Sprintf("Node/%s Warning PoolClosed %q 1", node.Name, strings.Repeat("ä", 510)+"...")
	if len(got) != 1 || got[0] != want {
		t.Errorf("events: %q", got)
	}
}

// An API that is away loses no event; a namespace that is gone does not stop the others.
func TestEventsWait(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	claim := refOf(newClaim(t, plane, ns, "claim", "1"))
	var told healthLog
	c, w := newClient(t, Options{OnHealth: told.add})
	var tries atomic.Int32
	w.intercept(func(r *http.Request) (*http.Response, error) {
		tries.Add(1)
		return nil, errors.New("cable cut")
	})
	writing(t, c)
	elsewhere := claim
	elsewhere.Namespace = "no-such-namespace"
	c.Event(elsewhere, corev1.EventTypeWarning, "Nowhere", "nowhere")
	c.Event(claim, corev1.EventTypeNormal, "Provisioned", "normal")
	c.Event(claim, corev1.EventTypeWarning, "PoolClosed", "warning")
	eventually(t, "several tries", func() bool { return tries.Load() > 2 })
	if err := c.Flush(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "3 events are not written: ") {
		t.Errorf("a flush meanwhile: %v", err)
	}
	w.intercept(nil)
	expectSaid(t, ns, `PersistentVolumeClaim/claim Normal Provisioned "normal" 1`, `PersistentVolumeClaim/claim Warning PoolClosed "warning" 1`)
	// The informers report a server that cannot be reached.
	if got := told.read(); len(got) != 0 {
		t.Errorf("health: %q", got)
	}
}

// An event that the API server forbids is retried, because a server that starts forbids everything; after forbiddenFor
// it is reported once, and discarded.
func TestEventsForbidden(t *testing.T) {
	ctx, ns := t.Context(), namespace(t)
	path := t.TempDir() + "/kubeconfig"
	if err := plane.ServiceAccountKubeconfig(ctx, ns, "default", "", path); err != nil {
		t.Fatal(err)
	}
	var told healthLog
	c, _ := newClient(t, Options{Kubeconfig: path, OnHealth: told.add})
	claim := corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: ns, Name: "claim", UID: "1"}
	for i := range 3 {
		c.Event(claim, corev1.EventTypeWarning, "PoolClosed", fmt.Sprint(i))
	}
	if err := c.Flush(ctx); !apierrors.IsForbidden(err) || !strings.HasPrefix(err.Error(), "1 events are not written: ") || len(told.read()) > 0 {
		t.Errorf("at first: %v, health: %q", err, told.read())
	}
	if c.events.queue.pending() == 0 {
		t.Fatal("the event was discarded at once")
	}
	c.events.queue.queue[0].queued = time.Now().Add(-2 * forbiddenFor)
	if err := c.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if got := told.read(); len(got) != 1 || !strings.HasPrefix(got[0], "events: PoolClosed on PersistentVolumeClaim claim: events is forbidden: ") {
		t.Errorf("health: %q", got)
	}
	if got := said(t, ns); len(got) != 0 {
		t.Errorf("events: %q", got)
	}
}

func TestNormalEventsStandBack(t *testing.T) {
	q := newEventQueue()
	now := time.Now()
	q.add(event{namespace: "n", eventType: corev1.EventTypeNormal, message: "first"}, now)
	q.add(event{namespace: "n", eventType: corev1.EventTypeWarning, message: "second"}, now)
	cases := []struct {
		at          time.Duration
		busy, hurry bool
		want        string
	}{
		{0, true, false, "second"},
		{0, false, false, "second"}, // a warning comes first in any case
		{0, true, true, "second"},
	}
	for _, c := range cases {
		if n, _ := q.next(now.Add(c.at), c.busy, c.hurry); n == nil || n.message != c.want {
			t.Errorf("%+v: %v", c, n)
		}
	}
	warning, _ := q.next(now, true, false)
	q.markWritten(warning, 1, 1, now)
	if n, after := q.next(now, true, false); n != nil || after != quietPeriod {
		t.Errorf("while volumes are made: %v in %s, want nothing", n, after)
	}
	for _, c := range []struct {
		at          time.Duration
		busy, hurry bool
	}{{0, false, false}, {0, true, true}, {maxDefer, true, false}} {
		if n, _ := q.next(now.Add(c.at), c.busy, c.hurry); n == nil || n.message != "first" {
			t.Errorf("%+v: %v, want the first", c, n)
		}
	}
}

func TestRepeatsWaitAMinute(t *testing.T) {
	q := newEventQueue()
	now := time.Now()
	say := func(at time.Time) { q.add(event{namespace: "n", eventType: corev1.EventTypeWarning, message: "m"}, at) }
	say(now)
	n, _ := q.next(now, false, false)
	q.markWritten(n, 1, 1, now)
	say(now.Add(time.Second))
	say(now.Add(2 * time.Second))
	if n, after := q.next(now.Add(2*time.Second), false, false); n != nil || after != 58*time.Second {
		t.Errorf("a repeat: %v in %s, want nothing for 58 s", n, after)
	}
	n, _ = q.next(now.Add(time.Minute), false, false)
	if n == nil || n.count != 1 || n.pending != 2 {
		t.Fatalf("after a minute: %+v", n)
	}
	say(now.Add(time.Minute)) // while it is being written
	q.markWritten(n, 3, 2, now.Add(time.Minute))
	if len(q.queue) != 1 || n.pending != 1 {
		t.Errorf("queue of %d, pending %d; want what was said meanwhile", len(q.queue), n.pending)
	}
}

// A full queue drops the oldest Normal event, then the oldest Warning, and says that.
func TestFullQueue(t *testing.T) {
	q := newEventQueue()
	now := time.Now()
	add := func(kind, message string) bool {
		return q.add(event{namespace: "n", eventType: kind, message: message}, now)
	}
	add(corev1.EventTypeWarning, "w0")
	add(corev1.EventTypeNormal, "n0")
	add(corev1.EventTypeNormal, "n1")
	for i := range queueLength - 3 {
		add(corev1.EventTypeWarning, fmt.Sprint("fill", i))
	}
	var first []string
	for i, c := range []struct {
		kind string
		kept bool
	}{{corev1.EventTypeWarning, true}, {corev1.EventTypeNormal, true}, {corev1.EventTypeWarning, true}, {corev1.EventTypeWarning, false}} {
		if kept := add(c.kind, fmt.Sprint("more", i)); kept != c.kept {
			t.Errorf("%d: kept %v", i, kept)
		}
		first = append(first, q.queue[0].message)
		for _, n := range q.newNormal {
			first = append(first, n.message)
		}
	}
	if got, want := fmt.Sprint(first), "[w0 n1 w0 more1 w0 fill0]"; got != want {
		t.Errorf("the queue begins with %s, want %s", got, want)
	}
	if q.pending() != queueLength || len(q.byKey) != queueLength || q.dropped != [2]int64{3, 1} {
		t.Errorf("%d queued, %d known, dropped %v", q.pending(), len(q.byKey), q.dropped)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	q := newEventQueue()
	now := time.Now()
	for i := range 3 * cacheSize {
		q.add(event{namespace: "n", eventType: corev1.EventTypeNormal, message: fmt.Sprint("m", i)}, now)
		n, _ := q.next(now, false, false)
		q.markWritten(n, 1, 1, now)
	}
	if len(q.byKey) != cacheSize || len(q.cached) != cacheSize || q.pending() != 0 {
		t.Errorf("%d known, %d past, %d queued", len(q.byKey), len(q.cached), q.pending())
	}
}

// One that is written for the first time is fresh; what is said again meanwhile waits as a repeat does,
// and so does what was remembered. Whatever place it has, it leaves the queue once.
func TestNormalEventsSaidAgain(t *testing.T) {
	q := newEventQueue()
	now := time.Now()
	say := func(message string) {
		q.add(event{namespace: "n", eventType: corev1.EventTypeNormal, message: message}, now)
	}
	say("a")
	say("b")
	a, _ := q.next(now, false, false)
	say("a") // while it is being written
	q.markWritten(a, 1, 1, now)
	b, _ := q.next(now, false, false)
	q.markWritten(b, 1, 1, now)
	if a.message != "a" || b.message != "b" || q.pending() != 1 {
		t.Fatalf("%q, then %q, %d left", a.message, b.message, q.pending())
	}
	say("b")
	for range 2 {
		n, _ := q.next(now.Add(repeatInterval), false, false)
		q.markWritten(n, 2, 1, now.Add(repeatInterval))
	}
	if q.pending() != 0 || a.count != 2 || b.count != 2 || len(q.cached) != 2 {
		t.Errorf("%d left, written %d and %d times, %d remembered", q.pending(), a.count, b.count, len(q.cached))
	}
	say("c")
	say("d")
	q.discard(q.byKey[q.newNormal[1].key()])
	if c, _ := q.next(now, false, false); c.message != "c" || q.pending() != 1 {
		t.Errorf("%q, %d left", c.message, q.pending())
	}
}

func TestHealthReportsOnce(t *testing.T) {
	var told healthLog
	tr := newHealth(told.add)
	away := errors.New("refused")
	tr.failed("claims", away)
	tr.failed("volumes", away)
	tr.failed("claims", away)
	tr.recovered("claims")
	tr.recovered("classes")
	tr.failed("claims", away) // volumes are still away: nothing new
	tr.recovered("volumes")
	tr.recovered("claims")
	tr.recovered("claims")
	want := []string{"claims: refused", "well"}
	if got := told.read(); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}
