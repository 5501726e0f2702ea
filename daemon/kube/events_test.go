package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

func refOf(c *corev1.PersistentVolumeClaim) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID}
}

// eventsIn returns each event of the daemon in the namespace, one line each.
func eventsIn(t *testing.T, ns string) []string {
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

func expectEvents(t *testing.T, ns string, want ...string) {
	t.Helper()
	eventually(t, "events "+strings.Join(want, "; "), func() bool { return len(eventsIn(t, ns)) >= len(want) })
	if got := eventsIn(t, ns); !slices.Equal(got, want) {
		t.Errorf("events:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// writing runs the event writer until the test ends.
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
	expectEvents(t, ns, `PersistentVolumeClaim/claim Warning PoolClosed "pool fast: it is not mounted" 1`)
	if n := w.count("events"); n != 1 {
		t.Errorf("requests: %q, want one", w.requests())
	}
	for range 3 { // a repeat is written a minute later
		c.Event(claim, corev1.EventTypeWarning, "PoolClosed", "pool fast: it is not mounted")
	}
	c.Event(claim, corev1.EventTypeNormal, "ProvisioningSucceeded", "volume pvc-1")
	expectEvents(t, ns, `PersistentVolumeClaim/claim Normal ProvisioningSucceeded "volume pvc-1" 1`,
		`PersistentVolumeClaim/claim Warning PoolClosed "pool fast: it is not mounted" 1`)
	if err := c.Flush(ctx); err != nil { // and by Flush at once
		t.Fatal(err)
	}
	expectEvents(t, ns, `PersistentVolumeClaim/claim Normal ProvisioningSucceeded "volume pvc-1" 1`,
		`PersistentVolumeClaim/claim Warning PoolClosed "pool fast: it is not mounted" 4`)
	if n := w.count("events"); n != 3 {
		t.Errorf("requests: %q, want two creations and a patch", w.requests())
	}

	next, _ := newClient(t, Options{}) // the next process continues the count
	next.Event(claim, corev1.EventTypeWarning, "PoolClosed", "pool fast: it is not mounted")
	if err := next.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	expectEvents(t, ns, `PersistentVolumeClaim/claim Normal ProvisioningSucceeded "volume pvc-1" 1`,
		`PersistentVolumeClaim/claim Warning PoolClosed "pool fast: it is not mounted" 5`)
}

// What a claim was told last can be read where it has one event whatever that says.
func TestEventLastWritten(t *testing.T) {
	ctx, ns := t.Context(), namespace(t)
	claim := refOf(newClaim(t, plane, ns, "claim", "1"))
	c, _ := newClient(t, Options{})
	read := func() (time.Time, string) {
		at, text, err := c.EventLastWritten(ctx, claim, corev1.EventTypeWarning, plan.ReasonNoNodeFits, "")
		if err != nil {
			t.Fatal(err)
		}
		return at, text
	}
	if at, text := read(); !at.IsZero() || text != "" {
		t.Errorf("before the first one: %s, %q", at, text)
	}
	for _, want := range []string{"none, on node-a", "none, on node-b"} {
		c.Event(claim, corev1.EventTypeWarning, plan.ReasonNoNodeFits, want)
		if err := c.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if at, text := read(); text != want || time.Since(at).Abs() > time.Minute {
			t.Errorf("%s, %q, want %q", at, text, want)
		}
	}
}

// An event that the API server has deleted (after --event-ttl, an hour) is created again, with the
// whole count.
func TestExpiredEvent(t *testing.T) {
	ctx, ns := t.Context(), namespace(t)
	claim := refOf(newClaim(t, plane, ns, "claim", "1"))
	c, _ := newClient(t, Options{})
	for range 2 {
		c.Event(claim, corev1.EventTypeWarning, "PoolClosed", "closed")
		if err := c.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		left := eventsIn(t, ns)
		if len(left) != 1 {
			t.Fatalf("events: %q", left)
		}
		if err := plane.Client().CoreV1().Events(ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.Event(claim, corev1.EventTypeWarning, "PoolClosed", "closed")
	if err := c.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	expectEvents(t, ns, `PersistentVolumeClaim/claim Warning PoolClosed "closed" 3`)
}

// Events of a cluster-scoped object are in the namespace default; a long name and a long message
// are cut.
func TestEventNameAndMessageAreCut(t *testing.T) {
	ctx := t.Context()
	c, _ := newClient(t, Options{})
	node := corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: strings.Repeat("node-name.", 25) + "a", UID: "shapes"}
	c.Event(node, corev1.EventTypeWarning, "PoolClosed", strings.Repeat("ä", 2000))
	if err := c.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	got := slices.DeleteFunc(eventsIn(t, "default"), func(s string) bool { return !strings.HasPrefix(s, "Node/node-name.") })
	want := fmt.Sprintf("Node/%s Warning PoolClosed %q 1", node.Name, strings.Repeat("ä", 510)+"...")
	if len(got) != 1 || got[0] != want {
		t.Errorf("events: %q", got)
	}
}

// No event is lost while the API server is away. An event in a namespace that does not exist does
// not stop the others.
func TestEventsSurviveOutage(t *testing.T) {
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
	c.Event(claim, corev1.EventTypeNormal, "ProvisioningSucceeded", "normal")
	c.Event(claim, corev1.EventTypeWarning, "PoolClosed", "warning")
	eventually(t, "several tries", func() bool { return tries.Load() > 2 })
	if err := c.Flush(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "3 events are not written: ") {
		t.Errorf("a flush meanwhile: %v", err)
	}
	w.intercept(nil)
	expectEvents(t, ns, `PersistentVolumeClaim/claim Normal ProvisioningSucceeded "normal" 1`, `PersistentVolumeClaim/claim Warning PoolClosed "warning" 1`)
	// The informers report a server that cannot be reached.
	if got := told.read(); len(got) != 0 {
		t.Errorf("health: %q", got)
	}
}

// An event that the API server forbids is retried, because a server that starts forbids everything;
// after forbiddenFor it is reported once, and discarded.
func TestEventsForbidden(t *testing.T) {
	ctx, ns := t.Context(), namespace(t)
	path := t.TempDir() + "/kubeconfig"
	if err := plane.ServiceAccountKubeconfig(ctx, ns, "default", "", path); err != nil {
		t.Fatal(err)
	}
	var told, health healthLog
	c, _ := newClient(t, Options{Kubeconfig: path, OnHealth: health.add,
		OnEventLost: func(_ corev1.ObjectReference, err error) { told.add(err) }})
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
	if got := told.read(); len(got) != 1 || !strings.HasPrefix(got[0], "PoolClosed on PersistentVolumeClaim claim: events is forbidden: ") {
		t.Errorf("lost: %q", got)
	}
	if got := health.read(); len(got) != 0 {
		t.Errorf("health: %q", got)
	}
	if got := eventsIn(t, ns); len(got) != 0 {
		t.Errorf("events: %q", got)
	}
}

// An event that the API server forbids, as a quota of its namespace does, keeps no other one
// waiting: RunEvents writes those of other namespaces meanwhile, and so does Flush.
func TestForbiddenEventKeepsNoOtherWaiting(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(*testing.T, *Client){
		"RunEvents": writing,
		"Flush": func(t *testing.T, c *Client) {
			if err := c.Flush(t.Context()); !apierrors.IsForbidden(err) || !strings.HasPrefix(err.Error(), "1 events are not written: ") {
				t.Errorf("flush: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			full, ns := namespace(t), namespace(t)
			c, w := newClient(t, Options{})
			w.intercept(func(r *http.Request) (*http.Response, error) {
				if !strings.Contains(r.URL.Path, "/namespaces/"+full+"/events") {
					return nil, nil
				}
				body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"exceeded quota","code":403}`
				return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
			})
			began := time.Now()
			c.Event(corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: full, Name: "claim", UID: "1"}, corev1.EventTypeWarning, "PoolClosed", "first")
			claim := refOf(newClaim(t, plane, ns, "claim", "1"))
			c.Event(claim, corev1.EventTypeWarning, "PoolClosed", "second")
			write(t, c)
			expectEvents(t, ns, `PersistentVolumeClaim/claim Warning PoolClosed "second" 1`)
			if took := time.Since(began); took > forbiddenFor/2 {
				t.Errorf("the event of another namespace was written after %s", took)
			}
		})
	}
}

// An event whose requests fail keeps no other one waiting, whether the API server returns an error
// or nothing for it: neither those of other namespaces nor those of other objects of its own. The
// connection is not to blame.
func TestFailingEventKeepsNoOtherWaiting(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"returns an error": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			bad, good := namespace(t), namespace(t)
			over := make(chan struct{})
			defer close(over)
			var health, told healthLog
			c, w := newClient(t, Options{OnHealth: health.add,
				OnEvent: func(about corev1.ObjectReference, err error) {
					if err != nil {
						told.add(fmt.Errorf("%s: %w", about.Name, err))
					}
				}})
			w.intercept(func(r *http.Request) (*http.Response, error) {
				sent := ""
				if r.Body != nil {
					body, _ := io.ReadAll(r.Body)
					sent, r.Body = string(body), io.NopCloser(bytes.NewReader(body))
				}
				if !strings.Contains(r.URL.Path+sent, "troubled") {
					return nil, nil
				}
				if hangs {
					select {
					case <-over:
					case <-r.Context().Done():
						return nil, r.Context().Err()
					}
				}
				body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","message":"failed calling webhook","code":500}`
				return &http.Response{StatusCode: 500,
					Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
			})
			for i := range 10 {
				claim := corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: bad,
					Name: fmt.Sprint("troubled-", i), UID: types.UID(fmt.Sprint(i))}
				c.Event(claim, corev1.EventTypeWarning, "PoolClosed", "no")
				c.Event(claim, corev1.EventTypeNormal, "ProvisioningSucceeded", "yes")
			}
			writing(t, c)
			other := refOf(newClaim(t, plane, good, "claim", "1"))
			c.Event(other, corev1.EventTypeWarning, "PoolClosed", "warning")
			c.Event(other, corev1.EventTypeNormal, "ProvisioningSucceeded", "normal")
			expectEvents(t, good, `PersistentVolumeClaim/claim Normal ProvisioningSucceeded "normal" 1`, `PersistentVolumeClaim/claim Warning PoolClosed "warning" 1`)
			if !hangs {
				c.Event(refOf(newClaim(t, plane, bad, "claim", "1")), corev1.EventTypeWarning,
					"PoolClosed", "fine")
				expectEvents(t, bad, `PersistentVolumeClaim/claim Warning PoolClosed "fine" 1`)
				if got := told.read(); len(got) == 0 || !strings.HasPrefix(got[0], "troubled-") || !strings.Contains(got[0], "failed calling webhook") {
					t.Errorf("told: %q", got)
				}
			}
			if got := health.read(); len(got) != 0 {
				t.Errorf("health: %q", got)
			}
		})
	}
}
