package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/words"
)

// events writes notes, one after the other.
type eventWriter struct {
	client  *Client
	wake    chan struct{}
	writing chan struct{} // held by who writes: the background's writer or a flush

	mu    sync.Mutex
	queue eventQueue
}

func newEventWriter(c *Client) *eventWriter {
	return &eventWriter{
		client: c, wake: make(chan struct{}, 1), writing: make(chan struct{}, 1),
		queue: newEventQueue(),
	}
}

// Event notes what RunEvents will write about an object. It never blocks. kind is
// corev1.EventTypeNormal or EventTypeWarning. The same thing said again is counted, and the count
// written once a minute at most.
func (c *Client) Event(ref corev1.ObjectReference, kind, reason, message string) {
	n := event{namespace: ref.Namespace, regarding: ref, eventType: kind, reason: reason, message: message}
	if n.namespace == "" {
		n.namespace = metav1.NamespaceDefault // where the events of cluster-wide objects are
	}
	e := c.events
	e.mu.Lock()
	kept := e.queue.add(n, time.Now())
	e.mu.Unlock()
	if !kept {
		c.health.failed("event queue", errors.New("it is full of warnings; the oldest are dropped"))
	}
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// EventLastWritten answers when this event was written last, by whichever daemon: those that say the same about the
// same object write one event. Zero is never, or long ago.
func (c *Client) EventLastWritten(ctx context.Context, ref corev1.ObjectReference, kind, reason, message string) (time.Time, error) {
	n := event{regarding: ref, eventType: kind, reason: reason, message: words.Line(message, words.MessageMax)}
	there, name := &corev1.Event{}, eventName(n)
	err := c.core.Get().Namespace(ref.Namespace).Resource("events").Name(name).Timeout(callTimeout).Do(ctx).Into(there)
	if absent(err, name) {
		return time.Time{}, nil
	}
	return there.LastTimestamp.Time, err
}

// EventsDropped is how many events there was no room for since the start.
func (c *Client) EventsDropped() (normal, warning int64) {
	e := c.events
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.queue.dropped[0], e.queue.dropped[1]
}

// RunEvents writes events until ctx ends. What is left then is Flush's.
func (c *Client) RunEvents(ctx context.Context) {
	var wait backoff
	for ctx.Err() == nil {
		n, after := c.events.next(c.inFlight.busy(time.Now()), false)
		if n == nil {
			c.events.sleep(ctx, after)
			continue
		}
		if err := c.events.write(ctx, n); err != nil {
			// A server that cannot be reached is the sieves' to tell: they notice its return at once, while
			// the next event may not be due for a while.
			if wait.tries > 0 && kindOf("events", err) != unreachable {
				c.health.failed("events", err)
			}
			pause(ctx, wait.next(err))
			continue
		}
		wait.reset()
	}
}

// Flush writes at once whatever waits, and ends when nothing does, or with the first error.
func (c *Client) Flush(ctx context.Context) error {
	for {
		n, _ := c.events.next(false, true)
		if n == nil {
			return nil
		}
		if err := c.events.write(ctx, n); err != nil {
			c.events.mu.Lock()
			defer c.events.mu.Unlock()
			return fmt.Errorf("%d events are not written: %w", c.events.queue.waiting(), err)
		}
	}
}

func (e *eventWriter) next(busy, hurry bool) (*event, time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.queue.next(time.Now(), busy, hurry)
}

func (e *eventWriter) sleep(ctx context.Context, after time.Duration) {
	var timer <-chan time.Time
	if after > 0 {
		timer = time.After(after)
	}
	select {
	case <-ctx.Done():
	case <-e.wake:
	case <-timer:
	}
}

// write writes one note. An error is one that may pass; what the API server will never take is told
// and given up.
func (e *eventWriter) write(ctx context.Context, n *event) error {
	select {
	case e.writing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-e.writing }()
	e.mu.Lock()
	snapshot := *n
	e.mu.Unlock()
	if snapshot.pending == 0 {
		return nil // somebody else wrote it while we waited for our turn
	}
	count, err := e.client.put(ctx, snapshot)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err == nil:
		e.queue.markWritten(n, count, snapshot.pending, time.Now())
		e.client.health.recovered("events")
		e.client.health.recovered("event queue")
	case hopeless(err, n.namespace):
		e.queue.discard(n)
		if !absent(err, n.namespace) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			e.client.health.failed("events", fmt.Errorf("%s on %s %s: %w", n.reason, n.regarding.Kind, n.regarding.Name, err))
		}
	default:
		return err
	}
	return nil
}

// hopeless is an answer that will be the same tomorrow. What is absent is the namespace.
func hopeless(err error, namespace string) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		absent(err, namespace) || apierrors.IsRequestEntityTooLargeError(err)
}

// put creates the event or raises its count, and answers the count that it now has.
func (c *Client) put(ctx context.Context, n event) (count int32, err error) {
	count = n.count + n.pending
	if n.count > 0 {
		err := c.raise(ctx, n, count)
		if !absent(err, n.name) {
			return count, err
		}
		// The API server forgets events after an hour (--event-ttl).
	}
	err = c.core.Post().Namespace(n.namespace).Resource("events").Body(n.object(c.options.Node, count)).
		Timeout(callTimeout).Do(ctx).Error()
	if !apierrors.IsAlreadyExists(err) {
		return count, err
	}
	// An earlier process wrote it, or this one did and did not hear the answer.
	there := &corev1.Event{}
	err = c.core.Get().Namespace(n.namespace).Resource("events").Name(n.name).Timeout(callTimeout).Do(ctx).Into(there)
	if err != nil {
		return 0, err
	}
	count = there.Count + n.pending
	return count, c.raise(ctx, n, count)
}

func (c *Client) raise(ctx context.Context, n event, count int32) error {
	patch, err := json.Marshal(map[string]any{"count": count, "lastTimestamp": n.last.UTC().Format(time.RFC3339), "message": n.message})
	if err != nil {
		return err
	}
	return c.core.Patch(types.MergePatchType).Namespace(n.namespace).Resource("events").Name(n.name).
		Body(patch).Timeout(callTimeout).Do(ctx).Error()
}
