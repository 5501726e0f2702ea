package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// eventWriter writes the events of a queue.
type eventWriter struct {
	client *Client
	lanes  [2]lane // indexes are trusted and suspect

	mu    sync.Mutex
	queue eventQueue
}

// lane writes the events of one kind, one at a time. An event whose request fails, or one of a
// namespace in which the last one failed, is suspect: it may take a webhook's whole timeout, and
// keeps no other one waiting.
type lane struct {
	wake    chan struct{}
	writing chan struct{} // a semaphore: RunEvents and Flush write in turn
}

const trusted, suspect = 0, 1

func newEventWriter(c *Client) *eventWriter {
	e := &eventWriter{client: c, queue: newEventQueue()}
	for i := range e.lanes {
		e.lanes[i] = lane{wake: make(chan struct{}, 1), writing: make(chan struct{}, 1)}
	}
	return e
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
		c.options.OnEventLost(ref, errors.New("the queue of events is full of warnings; the oldest are dropped"))
	}
	e.wake()
}

// wake has both lanes look at the queue.
func (e *eventWriter) wake() {
	for _, l := range e.lanes {
		wake.Signal(l.wake)
	}
}

// EventLastWritten returns when an event was last written by any daemon, and its message, which may
// be another one where plan.OneEvent: daemons that report the same about the same object write one
// Event object. The zero time is never, or longer ago than the API server keeps events.
func (c *Client) EventLastWritten(ctx context.Context, ref corev1.ObjectReference, eventType, reason, message string) (at time.Time, text string, err error) {
	n := event{regarding: ref, eventType: eventType, reason: reason, message: words.Line(message, words.MessageMax)}
	object, err := eventKind.get(ctx, c,
		cmp.Or(ref.Namespace, metav1.NamespaceDefault), eventName(n))
	if object == nil {
		return time.Time{}, "", err
	}
	return object.LastTimestamp.Time, object.Message, nil
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
	var all sync.WaitGroup
	for which := range c.events.lanes {
		all.Go(func() { c.events.run(ctx, which) })
	}
	all.Wait()
}

func (e *eventWriter) run(ctx context.Context, which int) {
	var wait backoff
	for ctx.Err() == nil {
		if !e.enter(ctx, which) {
			return
		}
		n, after := e.next(which, e.client.inFlight.busy(time.Now()), false)
		if n == nil {
			e.leave(which)
			wake.Wait(ctx, cmp.Or(after, time.Hour), e.lanes[which].wake)
			continue
		}
		err := e.write(ctx, n)
		e.leave(which)
		_, asked := apierrors.SuggestsClientDelay(err)
		switch {
		case err == nil:
			wait.reset()
		case !ownTrouble(err), asked: // the informers report a server that cannot be reached
			wake.Wait(ctx, wait.next(err), nil)
		case which == suspect:
			wake.Wait(ctx, min(wait.next(err), time.Second), nil)
		}
	}
}

// Flush writes all pending events at once. It returns the first error, with the number of events
// that are not written. An event that the API server refuses keeps no other one waiting.
func (c *Client) Flush(ctx context.Context) (err error) {
	e := c.events
	for which := range e.lanes {
		if !e.enter(ctx, which) {
			return ctx.Err()
		}
		defer e.leave(which)
	}
	var aside []*event
	for {
		n, _ := e.next(trusted, false, true)
		if n == nil {
			break
		}
		failed := e.write(ctx, n)
		err = cmp.Or(err, failed)
		if failed != nil && !ownTrouble(failed) {
			break
		}
		if failed != nil {
			aside = append(aside, n)
			e.mu.Lock()
			e.queue.dequeue(n)
			e.mu.Unlock()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queue.queue = append(e.queue.queue, aside...)
	if err != nil {
		return fmt.Errorf("%d events are not written: %w", e.queue.pending(), err)
	}
	return nil
}

func (e *eventWriter) enter(ctx context.Context, which int) bool {
	select {
	case e.lanes[which].writing <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (e *eventWriter) leave(which int) { <-e.lanes[which].writing }

func (e *eventWriter) next(which int, busy, flush bool) (*event, time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.queue.next(time.Now(), which, busy, flush)
}

// ownTrouble reports whether an error is that of one event: the API server responded, or did so to
// others in the time that this one took.
func ownTrouble(err error) bool {
	var timeout interface{ Timeout() bool }
	if apierrors.IsUnauthorized(err) {
		return false
	}
	return errors.As(err, new(apierrors.APIStatus)) || errors.As(err, &timeout) && timeout.Timeout()
}

// write writes one event. It returns an error that a retry may overcome. An event that the API
// server will never accept is reported and discarded.
func (e *eventWriter) write(ctx context.Context, n *event) error {
	e.mu.Lock()
	snapshot := *n
	e.mu.Unlock()
	count, err := e.client.writeEvent(ctx, snapshot)
	if ctx.Err() != nil && err != nil {
		return err
	}
	options := e.client.options
	switch lost := permanent(err, n.namespace, time.Since(n.queued)); {
	case err == nil:
		options.OnEvent(n.regarding, nil)
	case lost && (absent(err, n.namespace) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)):
		options.OnEventLost(n.regarding, nil)
	case lost:
		options.OnEventLost(n.regarding, fmt.Errorf("%s on %s %s: %w", n.reason, n.regarding.Kind, n.regarding.Name, err))
	case ownTrouble(err) && !apierrors.IsForbidden(err):
		options.OnEvent(n.regarding, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.wake() // the other events of the namespace may be in another lane now
	switch {
	case err == nil:
		e.queue.markWritten(n, count, snapshot.pending, time.Now())
		return nil
	case permanent(err, n.namespace, time.Since(n.queued)):
		e.queue.discard(n)
		return nil
	case ownTrouble(err):
		e.queue.postpone(n, err, time.Now())
	}
	return err
}

// forbiddenFor is how long an event that the API server forbids is retried: a server that starts
// forbids every request until it has read its roles, which takes seconds (kubernetes,
// pkg/registry/rbac/rest, rbac/bootstrap-roles).
const forbiddenFor = 10 * time.Second

// refusedFor is how long an event is retried that the API server refuses otherwise. It keeps
// written ones for as long.
const refusedFor = time.Hour

// permanent reports whether a retry of an event that has been pending for so long would have the
// same error, or be of no use any more. The absent object is the namespace.
func permanent(err error, namespace string, pending time.Duration) bool {
	return ownTrouble(err) && pending > refusedFor ||
		apierrors.IsForbidden(err) && (pending > forbiddenFor || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)) ||
		apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || absent(err, namespace) || apierrors.IsRequestEntityTooLargeError(err)
}

// writeEvent creates the Event object or increases its count. It returns the count that the object
// has then.
func (c *Client) writeEvent(ctx context.Context, n event) (count int32, err error) {
	count = n.count + n.pending
	if n.count > 0 {
		err := c.patchEvent(ctx, n, count)
		if !absent(err, n.name) {
			return count, err
		}
		// The API server deletes events after an hour (--event-ttl).
	}
	_, err = eventKind.create(ctx, c, n.namespace, n.object(c.options.Node, count))
	if !apierrors.IsAlreadyExists(err) {
		return count, err
	}
	// Another process created it, or this one did and the response was lost.
	object, readErr := eventKind.get(ctx, c, n.namespace, n.name)
	if object == nil {
		return 0, cmp.Or(readErr, err) // it was deleted meanwhile: tried again
	}
	count = object.Count + n.pending
	return count, c.patchEvent(ctx, n, count)
}

func (c *Client) patchEvent(ctx context.Context, n event, count int32) error {
	of := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: n.name}}
	_, err := eventKind.change(ctx, c, of, map[string]any{
		"count": count, "lastTimestamp": n.last.UTC().Format(time.RFC3339), "message": n.message,
	})
	return err
}
