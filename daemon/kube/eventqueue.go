package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

const (
	// queueLength is how many different events may be pending. A burst of claims has one Normal
	// event each.
	queueLength = 4096
	// cacheSize is how many written events are kept, so that a repeat becomes a count.
	cacheSize = 1024
	// repeatInterval is the shortest time between two writes of one event.
	repeatInterval = time.Minute
	// maxDefer is how long a Normal event waits at most until no volume is being created.
	maxDefer = 3 * time.Second
)

// event is an event and how often it occurred. Occurrences with the same object, type, reason and
// message are one event; numbers in the message do not count (words.Same).
type event struct {
	namespace, name string // of the Event object
	regarding       corev1.ObjectReference
	eventType       string
	reason, message string

	first, last time.Time // occurrence
	queued      time.Time
	written     time.Time
	count       int32 // occurrences in the Event object; 0 before the first write
	pending     int32 // occurrences that are not written

	wait    backoff   // of its failed requests since it was written last
	retryAt time.Time // not before, if the last request failed
}

// eventQueue holds the events that are pending, and those that were written, to count their
// repeats. It is not safe for concurrent use, and its callers pass the time.
type eventQueue struct {
	byKey     map[string]*event // all of them
	queue     []*event          // pending: Warnings, and repeats of written events; in the order of their occurrence
	newNormal []*event          // pending: Normal events that were never written; of a burst only the first is looked at
	cached    []*event          // written, the oldest first
	dropped   [2]int64          // events for which there was no room: Normal, Warning
	failing   map[string]bool   // namespaces whose last request failed
}

func newEventQueue() eventQueue {
	return eventQueue{byKey: map[string]*event{}, failing: map[string]bool{}}
}

// lane returns which lane writes an event.
func (q *eventQueue) lane(n *event) int {
	if n.wait.tries > 0 || q.failing[n.namespace] {
		return suspect
	}
	return trusted
}

// add counts an occurrence. It returns false if a Warning had to be dropped because the queue is
// full.
func (q *eventQueue) add(n event, now time.Time) bool {
	n.message = words.Line(n.message, words.MessageMax)
	n.name = eventName(n)
	known := q.byKey[n.key()]
	if known == nil {
		n.first = now
		known = &n
		q.byKey[n.key()] = known
	}
	known.last, known.message = now, n.message // the latest numbers
	known.pending++
	if known.pending == 1 {
		known.queued = now
		q.enqueue(known)
		q.cached = slices.DeleteFunc(q.cached, func(p *event) bool { return p == known })
	}
	return q.pending() <= queueLength || q.dropOne()
}

// pending returns how many events are to be written.
func (q *eventQueue) pending() int { return len(q.queue) + len(q.newNormal) }

func (q *eventQueue) enqueue(n *event) {
	if n.count == 0 && n.eventType == corev1.EventTypeNormal && q.lane(n) == trusted {
		q.newNormal = append(q.newNormal, n)
	} else {
		q.queue = append(q.queue, n)
	}
}

func (q *eventQueue) dequeue(n *event) {
	same := func(p *event) bool { return p == n }
	switch {
	case len(q.newNormal) > 0 && q.newNormal[0] == n: // nearly always
		q.newNormal[0], q.newNormal = nil, q.newNormal[1:]
	case n.eventType == corev1.EventTypeNormal:
		q.newNormal = slices.DeleteFunc(q.newNormal, same)
		fallthrough
	default:
		q.queue = slices.DeleteFunc(q.queue, same)
	}
}

// dropOne drops the oldest event that the API server refused, the oldest Normal event if there is
// none, or the oldest Warning. It reports whether the dropped event was Normal.
func (q *eventQueue) dropOne() bool {
	normals := func(n *event) bool { return n.eventType == corev1.EventTypeNormal }
	if at := slices.IndexFunc(q.queue, func(n *event) bool { return n.wait.tries > 0 }); at >= 0 {
		return q.drop(q.queue[at])
	}
	oldest := q.newNormal
	if len(oldest) == 0 {
		oldest = q.queue[max(slices.IndexFunc(q.queue, normals), 0):]
	}
	return q.drop(oldest[0])
}

func (q *eventQueue) drop(n *event) (normal bool) {
	if normal = n.eventType == corev1.EventTypeNormal; normal {
		q.dropped[0]++
	} else {
		q.dropped[1]++
	}
	delete(q.byKey, n.key())
	q.dequeue(n)
	return normal
}

// next returns the event that a lane writes now: the one that failed least often, a Warning before
// a Normal event, each in the order of occurrence. If there is none, after is when to call next
// again; 0 is after the next add. With flush, no event is delayed, and the lane does not matter.
func (q *eventQueue) next(now time.Time, lane int, busy, flush bool) (n *event, after time.Duration) {
	for len(q.newNormal) > 0 && q.lane(q.newNormal[0]) == suspect { // it keeps those behind it waiting
		q.queue = append(q.queue, q.newNormal[0])
		q.newNormal[0], q.newNormal = nil, q.newNormal[1:]
	}
	for i := range len(q.queue) + min(len(q.newNormal), 1) {
		one := q.at(i)
		if !flush && q.lane(one) != lane {
			continue
		}
		switch delay := one.delay(now, busy); {
		case delay > 0 && !flush:
			if after == 0 || delay < after {
				after = delay
			}
		case n == nil || one.before(n):
			n = one
		}
		if n != nil && n.wait.tries == 0 && n.eventType != corev1.EventTypeNormal {
			break // none is before it
		}
	}
	if n != nil {
		return n, 0
	}
	return nil, after
}

// before reports whether an event is written before one that occurred before it.
func (n *event) before(other *event) bool {
	if n.wait.tries != other.wait.tries {
		return n.wait.tries < other.wait.tries
	}
	return n.eventType != corev1.EventTypeNormal && other.eventType == corev1.EventTypeNormal
}

// at returns the i-th event of queue, and after those the first of newNormal, whose delay is the
// shortest of them.
func (q *eventQueue) at(i int) *event {
	if i < len(q.queue) {
		return q.queue[i]
	}
	return q.newNormal[i-len(q.queue)]
}

// delay returns how long an event must wait: one that was refused for its backoff, a repeat for
// repeatInterval, a Normal event while volumes are created.
func (n *event) delay(now time.Time, busy bool) time.Duration {
	if wait := n.retryAt.Sub(now); wait > 0 {
		return wait
	}
	if n.count > 0 {
		if wait := n.written.Add(repeatInterval).Sub(now); wait > 0 {
			return wait
		}
	}
	if busy && n.eventType == corev1.EventTypeNormal {
		return min(quietPeriod, max(0, n.queued.Add(maxDefer).Sub(now)))
	}
	return 0
}

// markWritten records that the Event object has this count now, with as many occurrences that were
// pending.
func (q *eventQueue) markWritten(n *event, count, occurrences int32, now time.Time) {
	n.count, n.written, n.wait, n.retryAt = count, now, backoff{}, time.Time{}
	delete(q.failing, n.namespace)
	n.pending -= occurrences
	if q.byKey[n.key()] != n {
		return // dropped
	}
	q.dequeue(n)
	if n.pending > 0 { // it occurred again meanwhile
		q.enqueue(n)
		return
	}
	q.cached = append(q.cached, n)
	if len(q.cached) > cacheSize {
		delete(q.byKey, q.cached[0].key())
		q.cached = slices.Delete(q.cached, 0, 1)
	}
}

// postpone puts a pending event behind the others, and makes the suspect lane write those of its
// namespace.
func (q *eventQueue) postpone(n *event, err error, now time.Time) {
	n.retryAt = now.Add(n.wait.next(err))
	q.failing[n.namespace] = true
	if q.byKey[n.key()] == n {
		q.dequeue(n)
		q.queue = append(q.queue, n)
	}
}

// discard forgets an event that the API server does not accept.
func (q *eventQueue) discard(n *event) {
	if q.byKey[n.key()] == n {
		delete(q.byKey, n.key())
		q.dequeue(n)
	}
}

func (n *event) key() string { return n.namespace + "/" + n.name }

// object returns the Event object to create. kubectl describe shows Source; the reporting fields
// are its successors.
func (n *event) object(node string, count int32) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: n.namespace, Name: n.name},
		InvolvedObject: n.regarding, Type: n.eventType, Reason: n.reason, Message: n.message,
		FirstTimestamp: metav1.NewTime(n.first), LastTimestamp: metav1.NewTime(n.last), Count: count,
		Source:              corev1.EventSource{Component: component, Host: node},
		ReportingController: component, ReportingInstance: node,
	}
}

// eventName returns the same name for the same event, also in the next process, so that a repeat
// finds the Event object that exists: also one with another message where an object has one event
// of a reason.
func eventName(n event) string {
	message := words.Same(n.message)
	if plan.OneEvent(n.reason) {
		message = ""
	}
	hash := sha256.Sum256([]byte(strings.Join([]string{string(n.regarding.UID), n.eventType, n.reason, message}, "\x00")))
	suffix := "." + hex.EncodeToString(hash[:8])
	prefix := n.regarding.Name
	if room := 253 - len(suffix); len(prefix) > room { // a DNS subdomain
		prefix = strings.TrimRight(prefix[:room], ".-")
	}
	return prefix + suffix
}

// inFlight counts the volume objects that are being created. Normal events wait until there are
// none.
type inFlight struct {
	requests atomic.Int64
	ended    atomic.Int64 // when the last request ended, in nanoseconds since the epoch
}

// quietPeriod is how long no volume must have been created for a burst to be over: between two
// volumes of a burst is the time in which a directory is made.
const quietPeriod = 150 * time.Millisecond

// begin counts a request until end is called.
func (f *inFlight) begin() (end func()) {
	f.requests.Add(1)
	return func() {
		f.ended.Store(time.Now().UnixNano())
		f.requests.Add(-1)
	}
}

// busy reports whether a volume is being created, or was within quietPeriod.
func (f *inFlight) busy(now time.Time) bool {
	return f.requests.Load() > 0 || now.Sub(time.Unix(0, f.ended.Load())) < quietPeriod
}
