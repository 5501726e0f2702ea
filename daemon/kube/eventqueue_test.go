package kube

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// A Warning is written before a Normal event, which waits while volumes are created, for maxDefer
// at most. Flush writes both at once.
func TestNormalEventsWaitWhileBusy(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		written     bool // the Warning
		at          time.Duration
		busy, flush bool
		want        string
		after       time.Duration
	}{
		"a Warning while busy":             {busy: true, want: "warning"},
		"a Warning first while idle":       {want: "warning"},
		"a Warning first in a flush":       {busy: true, flush: true, want: "warning"},
		"no Normal event while busy":       {written: true, busy: true, after: quietPeriod},
		"a Normal event while idle":        {written: true, want: "normal"},
		"a Normal event in a flush":        {written: true, busy: true, flush: true, want: "normal"},
		"a Normal event after a long time": {written: true, at: maxDefer, busy: true, want: "normal"},
	} {
		t.Run(name, func(t *testing.T) {
			q := newEventQueue()
			q.add(event{namespace: "n", eventType: corev1.EventTypeNormal, message: "normal"}, now)
			q.add(event{namespace: "n", eventType: corev1.EventTypeWarning, message: "warning"}, now)
			if c.written {
				q.markWritten(q.queue[0], 1, 1, now)
			}
			message := ""
			n, after := q.next(now.Add(c.at), trusted, c.busy, c.flush)
			if n != nil {
				message = n.message
			}
			if message != c.want || after != c.after {
				t.Errorf("%q after %s, want %q after %s", message, after, c.want, c.after)
			}
		})
	}
}

func TestRepeatsAreWrittenOnceAMinute(t *testing.T) {
	q := newEventQueue()
	now := time.Now()
	occur := func(at time.Time) { q.add(event{namespace: "n", eventType: corev1.EventTypeWarning, message: "m"}, at) }
	occur(now)
	n, _ := q.next(now, trusted, false, false)
	q.markWritten(n, 1, 1, now)
	occur(now.Add(time.Second))
	occur(now.Add(2 * time.Second))
	if n, after := q.next(now.Add(2*time.Second), trusted, false, false); n != nil || after != 58*time.Second {
		t.Errorf("a repeat: %v in %s, want nothing for 58 s", n, after)
	}
	n, _ = q.next(now.Add(time.Minute), trusted, false, false)
	if n == nil || n.count != 1 || n.pending != 2 {
		t.Fatalf("after a minute: %+v", n)
	}
	occur(now.Add(time.Minute)) // while it is being written
	q.markWritten(n, 3, 2, now.Add(time.Minute))
	if len(q.queue) != 1 || n.pending != 1 {
		t.Errorf("queue of %d, pending %d; want the occurrence meanwhile", len(q.queue), n.pending)
	}
}

// A full queue drops the oldest Normal event, then the oldest Warning, and reports that.
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
		name, eventType string
		kept            bool
	}{
		{"a Warning drops n0", corev1.EventTypeWarning, true},
		{"a Normal event drops n1", corev1.EventTypeNormal, true},
		{"a Warning drops that", corev1.EventTypeWarning, true},
		{"a Warning drops the oldest Warning", corev1.EventTypeWarning, false},
	} {
		if kept := add(c.eventType, fmt.Sprint("more", i)); kept != c.kept {
			t.Errorf("%s: reported as %v", c.name, kept)
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
		t.Errorf("%d pending, %d known, dropped %v", q.pending(), len(q.byKey), q.dropped)
	}
}

func TestWrittenEventsAreBounded(t *testing.T) {
	q := newEventQueue()
	now := time.Now()
	for i := range 3 * cacheSize {
		q.add(event{namespace: "n", eventType: corev1.EventTypeNormal, message: fmt.Sprint("m", i)}, now)
		n, _ := q.next(now, trusted, false, false)
		q.markWritten(n, 1, 1, now)
	}
	if len(q.byKey) != cacheSize || len(q.cached) != cacheSize || q.pending() != 0 {
		t.Errorf("%d known, %d written, %d pending", len(q.byKey), len(q.cached), q.pending())
	}
}

// A Normal event that occurs again while it is being written, or after that, is written again as a
// repeat, and is in the queue once.
func TestNormalEventsRepeat(t *testing.T) {
	q := newEventQueue()
	now := time.Now()
	occur := func(message string) {
		q.add(event{namespace: "n", eventType: corev1.EventTypeNormal, message: message}, now)
	}
	occur("a")
	occur("b")
	a, _ := q.next(now, trusted, false, false)
	occur("a") // while it is being written
	q.markWritten(a, 1, 1, now)
	b, _ := q.next(now, trusted, false, false)
	q.markWritten(b, 1, 1, now)
	if a.message != "a" || b.message != "b" || q.pending() != 1 {
		t.Fatalf("%q, then %q, %d left", a.message, b.message, q.pending())
	}
	occur("b")
	for range 2 {
		n, _ := q.next(now.Add(repeatInterval), trusted, false, false)
		q.markWritten(n, 2, 1, now.Add(repeatInterval))
	}
	if q.pending() != 0 || a.count != 2 || b.count != 2 || len(q.cached) != 2 {
		t.Errorf("%d left, written %d and %d times, %d remembered", q.pending(), a.count, b.count, len(q.cached))
	}
	occur("c")
	occur("d")
	q.discard(q.byKey[q.newNormal[1].key()])
	if c, _ := q.next(now, trusted, false, false); c.message != "c" || q.pending() != 1 {
		t.Errorf("%q, %d left", c.message, q.pending())
	}
}

// Of some reasons an object has one event, with the latest message, also where another daemon wrote
// it in other words.
func TestOneEventOfAReason(t *testing.T) {
	now, q := time.Now(), newEventQueue()
	ref := corev1.ObjectReference{UID: "u", Name: "claim"}
	for _, message := range []string{"none, on node-a", "none, on node-b"} {
		q.add(event{namespace: "n", regarding: ref, eventType: corev1.EventTypeWarning, reason: plan.ReasonNoNodeFits, message: message}, now)
	}
	n, _ := q.next(now, trusted, false, false)
	if q.pending() != 1 || n == nil || n.message != "none, on node-b" || n.pending != 2 || n.name != eventName(event{regarding: ref, eventType: corev1.EventTypeWarning, reason: plan.ReasonNoNodeFits}) {
		t.Errorf("%d are pending, the first is %+v", q.pending(), n)
	}
}

// What was refused is written by the lane of the suspect, after its backoff and after what failed
// less often; those of its namespace too, until one is written. It is the first to be dropped.
func TestSuspectEvents(t *testing.T) {
	now, q := time.Now(), newEventQueue()
	add := func(namespace, kind, message string) {
		q.add(event{namespace: namespace, eventType: kind, message: message}, now)
	}
	first := func(at time.Duration, lane int) string {
		if n, _ := q.next(now.Add(at), lane, false, false); n != nil {
			return n.message
		}
		return ""
	}
	want := func(at time.Duration, ofTrusted, ofSuspect string) {
		t.Helper()
		if a, b := first(at, trusted), first(at, suspect); a != ofTrusted || b != ofSuspect {
			t.Errorf("after %s: %q and %q, want %q and %q", at, a, b, ofTrusted, ofSuspect)
		}
	}
	for _, message := range []string{"refused", "normal", "second"} {
		add("bad", map[bool]string{true: corev1.EventTypeNormal,
			false: corev1.EventTypeWarning}[message == "normal"], message)
	}
	add("good", corev1.EventTypeNormal, "good")
	want(0, "refused", "")
	refused := q.queue[0]
	q.postpone(refused, errors.New("no"), now)
	want(0, "good", "second")
	second := q.queue[0]
	q.postpone(second, errors.New("no"), now)
	want(0, "good", "normal")
	want(longestDelay, "good", "normal")
	q.markWritten(q.byKey[(&event{namespace: "bad",
		name: eventName(event{eventType: corev1.EventTypeNormal, message: "normal"})}).key()], 1, 1, now)
	want(0, "good", "")
	want(longestDelay, "good", "refused")
	add("bad", corev1.EventTypeWarning, "third")
	want(0, "third", "")
	for i := range queueLength {
		add("good", corev1.EventTypeWarning, fmt.Sprint("fill", i))
	}
	if _, kept := q.byKey[refused.key()]; kept {
		t.Error("a refused event was kept before others")
	}
	if _, kept := q.byKey[second.key()]; kept {
		t.Error("the second refused event was kept before others")
	}
}
