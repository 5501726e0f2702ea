package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/words"
)

const (
	// queueLength is how many different events may wait. A burst of claims makes one Normal event each.
	queueLength = 4096
	// memory is how many events that were written are remembered, so that a repeat is a count.
	cacheSize = 1024
	// repeatInterval is how often one event may be written.
	repeatInterval = time.Minute
	// maxDefer is how long a Normal event waits for a quiet moment.
	maxDefer = 3 * time.Second
)

// note is one event: the same thing said about the same object is the same note, whatever its numbers.
type event struct {
	namespace, name string // of the event
	regarding       corev1.ObjectReference
	eventType       string
	reason, message string

	first, last time.Time // when it was said
	added       time.Time // to the queue
	written     time.Time
	count       int32 // how often, as the API server has it from us; 0 before the first write
	pending     int32 // how often since
}

// notes is the queue of what is to be written and the memory of what was. It is not safe for
// concurrent use, and it knows no clock.
type eventQueue struct {
	byKey     map[string]*event // queued or remembered, by event name
	queue     []*event          // Warnings, and what was written before and is said again; in the order in which they came
	newNormal []*event          // Normal ones that were never written; of a burst of them only the first is looked at
	cached    []*event          // remembered, oldest first
	dropped   [2]int64          // that could not be kept: Normal, Warning
}

func newEventQueue() eventQueue { return eventQueue{byKey: map[string]*event{}} }

// add notes one event, and answers false if a Warning had to be dropped for want of room.
func (q *eventQueue) add(n event, now time.Time) bool {
	n.message = words.Line(n.message, words.MessageMax)
	n.name = eventName(n)
	known := q.byKey[n.key()]
	if known == nil {
		n.first = now
		known = &n
		q.byKey[n.key()] = known
	}
	known.last, known.message = now, n.message // with the numbers of now
	known.pending++
	if known.pending == 1 {
		known.added = now
		q.enqueue(known)
		q.cached = slices.DeleteFunc(q.cached, func(p *event) bool { return p == known })
	}
	return q.waiting() <= queueLength || q.dropOne()
}

// waiting is how many notes are to be written.
func (q *eventQueue) waiting() int { return len(q.queue) + len(q.newNormal) }

func (q *eventQueue) enqueue(n *event) {
	if n.count == 0 && n.eventType == corev1.EventTypeNormal {
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

// dropOne makes room: the oldest Normal event goes, and a Warning only if there is nothing else.
func (q *eventQueue) dropOne() bool {
	normals := func(n *event) bool { return n.eventType == corev1.EventTypeNormal }
	oldest, normal := q.newNormal, true
	if len(oldest) == 0 {
		at := slices.IndexFunc(q.queue, normals)
		normal = at >= 0
		oldest = q.queue[max(at, 0):]
	}
	if normal {
		q.dropped[0]++
	} else {
		q.dropped[1]++
	}
	delete(q.byKey, oldest[0].key())
	q.dequeue(oldest[0])
	return normal
}

// next is the note to write now: a Warning before any Normal one, each in the order it came. If there
// is none, after says when to ask again; 0 is when something is added. A hurry lets nothing wait.
func (q *eventQueue) next(now time.Time, busy, hurry bool) (n *event, after time.Duration) {
	var normal *event
	for i := range len(q.queue) + min(len(q.newNormal), 1) {
		n := q.at(i)
		wait := n.delay(now, busy)
		switch {
		case wait > 0 && !hurry:
			if after == 0 || wait < after {
				after = wait
			}
		case n.eventType != corev1.EventTypeNormal:
			return n, 0
		case normal == nil:
			normal = n
		}
	}
	return normal, after
}

// at is the i-th note of the queue, and behind it the first of the fresh ones, which waits less than the rest.
func (q *eventQueue) at(i int) *event {
	if i < len(q.queue) {
		return q.queue[i]
	}
	return q.newNormal[i-len(q.queue)]
}

// wait is how long a note has to: a repeat for its minute, a Normal one for the traffic to end.
func (n *event) delay(now time.Time, busy bool) time.Duration {
	if n.count > 0 {
		if wait := n.written.Add(repeatInterval).Sub(now); wait > 0 {
			return wait
		}
	}
	if busy && n.eventType == corev1.EventTypeNormal {
		return min(quietPeriod, max(0, n.added.Add(maxDefer).Sub(now)))
	}
	return 0
}

// wrote notes that an event was written, to say that it had happened count times in all, of which
// said had been pending.
func (q *eventQueue) markWritten(n *event, count, said int32, now time.Time) {
	n.count, n.written = count, now
	n.pending -= said
	if q.byKey[n.key()] != n {
		return // dropped
	}
	q.dequeue(n)
	if n.pending > 0 { // said again meanwhile
		q.enqueue(n)
		return
	}
	q.cached = append(q.cached, n)
	if len(q.cached) > cacheSize {
		delete(q.byKey, q.cached[0].key())
		q.cached = slices.Delete(q.cached, 0, 1)
	}
}

// giveUp forgets a note that the API server does not want.
func (q *eventQueue) discard(n *event) {
	if q.byKey[n.key()] == n {
		delete(q.byKey, n.key())
		q.dequeue(n)
	}
}

func (n *event) key() string { return n.namespace + "/" + n.name }

// object is the event as it is created. Source is what kubectl describe shows; the reporting fields
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

// eventName is the same for what is the same, also for the next process, so that a repeat finds the
// event that is there already.
func eventName(n event) string {
	hash := sha256.Sum256([]byte(strings.Join([]string{string(n.regarding.UID), n.eventType, n.reason, words.Same(n.message)}, "\x00")))
	suffix := "." + hex.EncodeToString(hash[:8])
	prefix := n.regarding.Name
	if room := 253 - len(suffix); len(prefix) > room { // a DNS subdomain
		prefix = strings.TrimRight(prefix[:room], ".-")
	}
	return prefix + suffix
}
