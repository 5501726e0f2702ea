package kube

import (
	"cmp"
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

// eventWriter writes the events of a queue, one at a time.
type eventWriter struct {
	client  *Client
	wake    chan struct{}
	writing chan struct{} // a semaphore: RunEvents and Flush write in turn

	mu    sync.Mutex
	queue eventQueue
}

func newEventWriter(c *Client) *eventWriter {
	return &eventWriter{
		client: c, wake: make(chan struct{}, 1), writing: make(chan struct{}, 1),
		queue: newEventQueue(),
	}
}

// Event queues an event on an object, which RunEvents writes. It never blocks. eventType is
// corev1.EventTypeNormal or EventTypeWarning. Repeats are counted, and the count is written
// once a minute at most.
func (c *Client) Event(ref corev1.ObjectReference, eventType, reason, message string) {
	n := event{namespace: ref.Namespace, regarding: ref, eventType: eventType, reason: reason, message: message}
	if n.namespace == "" {
		n.namespace = metav1.NamespaceDefault // where the events of cluster-scoped objects are
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

// EventLastWritten returns when an event was last written by any daemon, and its message, which may be another one where plan.OneEvent:
// daemons that report the same about the same object write one Event object. The zero time is never, or longer ago than the
// API server keeps events.
func (c *Client) EventLastWritten(ctx context.Context, ref corev1.ObjectReference, eventType, reason, message string) (at time.Time, text string, err error) {
	n := event{regarding: ref, eventType: eventType, reason: reason, message: words.Line(message, words.MessageMax)}
	object, name := &corev1.Event{}, eventName(n)
	err = c.core.Get().Namespace(ref.Namespace).Resource("events").Name(name).Timeout(callTimeout).Do(ctx).Into(object)
	if absent(err, name) {
		return time.Time{}, "", nil
	}
	return object.LastTimestamp.Time, object.Message, err
}

// EventsDropped returns how many events were dropped since the start because the queue was full.
func (c *Client) EventsDropped() (normal, warning int64) {
	e := c.events
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.queue.dropped[0], e.queue.dropped[1]
}

// RunEvents writes events until ctx ends. Flush writes what is pending then.
func (c *Client) RunEvents(ctx context.Context) {
	var wait backoff
	for ctx.Err() == nil {
		n, after := c.events.next(c.inFlight.busy(time.Now()), false)
		if n == nil {
			c.events.sleep(ctx, after)
			continue
		}
		if err := c.events.write(ctx, n); err != nil {
			// The informers report a server that cannot be reached: they notice its return at once, while
			// the next event may not be due for a while.
			if wait.tries > 0 && failureKind("events", err) != unreachable {
				c.health.failed("events", err)
			}
			delay := wait.next(err)
			if apierrors.IsForbidden(err) { // the other events may be allowed
				delay = min(delay, time.Second)
			}
			pause(ctx, delay)
			continue
		}
		wait.reset()
	}
}

// Flush writes all pending events at once. It returns the first error, with the number of events that
// are not written. An event that the API server forbids keeps no other one waiting.
func (c *Client) Flush(ctx context.Context) (err error) {
	e := c.events
	var forbidden []*event
	for {
		n, _ := e.next(false, true)
		if n == nil {
			break
		}
		failed := e.write(ctx, n)
		err = cmp.Or(err, failed)
		if failed != nil && !apierrors.IsForbidden(failed) {
			break
		}
		if failed != nil {
			forbidden = append(forbidden, n)
			e.mu.Lock()
			e.queue.dequeue(n)
			e.mu.Unlock()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queue.queue = append(e.queue.queue, forbidden...)
	if err != nil {
		return fmt.Errorf("%d events are not written: %w", e.queue.pending(), err)
	}
	return nil
}

func (e *eventWriter) next(busy, flush bool) (*event, time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.queue.next(time.Now(), busy, flush)
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

// write writes one event. It returns an error that a retry may overcome. An event that the API server will
// never accept is reported and discarded.
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
		return nil // written while this call waited
	}
	count, err := e.client.writeEvent(ctx, snapshot)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err == nil:
		e.queue.markWritten(n, count, snapshot.pending, time.Now())
		e.client.health.recovered("events")
		e.client.health.recovered("event queue")
	case permanent(err, n.namespace, time.Since(n.queued)):
		e.queue.discard(n)
		if !absent(err, n.namespace) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			e.client.health.failed("events", fmt.Errorf("%s on %s %s: %w", n.reason, n.regarding.Kind, n.regarding.Name, err))
		}
	case apierrors.IsForbidden(err):
		e.queue.postpone(n)
		return err
	default:
		return err
	}
	return nil
}

// forbiddenFor is how long an event that the API server forbids is retried: a server that starts forbids every
// request until it has read its roles, which takes seconds (kubernetes, pkg/registry/rbac/rest, rbac/bootstrap-roles).
const forbiddenFor = 10 * time.Second

// permanent reports whether a retry of an event that has been pending for so long would have the same error. The
// absent object is the namespace.
func permanent(err error, namespace string, pending time.Duration) bool {
	return apierrors.IsForbidden(err) && (pending > forbiddenFor || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)) ||
		apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || absent(err, namespace) || apierrors.IsRequestEntityTooLargeError(err)
}

// writeEvent creates the Event object or increases its count. It returns the count that the object has then.
func (c *Client) writeEvent(ctx context.Context, n event) (count int32, err error) {
	count = n.count + n.pending
	if n.count > 0 {
		err := c.patchEvent(ctx, n, count)
		if !absent(err, n.name) {
			return count, err
		}
		// The API server deletes events after an hour (--event-ttl).
	}
	err = c.core.Post().Namespace(n.namespace).Resource("events").Body(n.object(c.options.Node, count)).
		Timeout(callTimeout).Do(ctx).Error()
	if !apierrors.IsAlreadyExists(err) {
		return count, err
	}
	// Another process created it, or this one did and the response was lost.
	object := &corev1.Event{}
	err = c.core.Get().Namespace(n.namespace).Resource("events").Name(n.name).Timeout(callTimeout).Do(ctx).Into(object)
	if err != nil {
		return 0, err
	}
	count = object.Count + n.pending
	return count, c.patchEvent(ctx, n, count)
}

func (c *Client) patchEvent(ctx context.Context, n event, count int32) error {
	patch, err := json.Marshal(map[string]any{"count": count, "lastTimestamp": n.last.UTC().Format(time.RFC3339), "message": n.message})
	if err != nil {
		return err
	}
	return c.core.Patch(types.MergePatchType).Namespace(n.namespace).Resource("events").Name(n.name).
		Body(patch).Timeout(callTimeout).Do(ctx).Error()
}
