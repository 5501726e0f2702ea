package report

import (
	"slices"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

const (
	// Repeat is how long the same message is not written again about the same object. The API
	// server keeps an event for an hour (kube-apiserver --event-ttl), so a reason that lasts stays
	// visible.
	Repeat = 15 * time.Minute
	// Settle is how long a message has to be the present one before it is written again that was
	// written within Repeat, and another one after it. So an object whose state changes to and fro
	// all the time, as that of a claim in a pool whose mount comes and goes, has each message once
	// in Repeat and no more; and what lasts is the last one written.
	Settle = 20 * time.Second
	// history is how many messages about an object are remembered.
	history = 4
)

// Dedup remembers the last messages about each object, by a key that the caller chooses. The zero
// value is ready for use, and all methods may be called at the same time. An entry stays until
// Resolve or Forget.
type Dedup struct {
	mu      sync.Mutex
	objects map[string]*messages
}

type messages struct {
	present string // as words.Same leaves it: without its numbers
	since   time.Time
	written []message // the last one last
}

type message struct {
	text string // as words.Same leaves it
	at   time.Time
}

// New notes the present message about an object, and reports whether it is to be written: it is
// none that was written within Repeat, apart from its numbers; or it is not the last one of these,
// and has been the present one for Settle.
func (d *Dedup) New(key, text string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.note(key, words.Line(words.Same(text), words.MessageMax), time.Now())
}

// Recovered is New for the message that what was written before is over: it is not written if
// nothing was, nor a second time, however long it lasts.
func (d *Dedup) Recovered(key, text string) bool {
	text = words.Line(words.Same(text), words.MessageMax)
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.objects[key]
	if o == nil || len(o.written) == 0 {
		return false
	}
	if o.written[len(o.written)-1].text == text {
		o.present, o.since = text, now
		return false
	}
	return d.note(key, text, now)
}

func (d *Dedup) note(key, text string, now time.Time) bool {
	if d.objects == nil {
		d.objects = map[string]*messages{}
	}
	o := d.objects[key]
	if o == nil {
		o = &messages{}
		d.objects[key] = o
	}
	if o.present != text || o.since.IsZero() {
		o.present, o.since = text, now
	}
	if o.wait(now) > 0 {
		return false
	}
	o.written = slices.DeleteFunc(o.written, func(m message) bool { return m.text == text })
	if len(o.written) == history {
		o.written = o.written[1:]
	}
	o.written = append(o.written, message{text, now})
	return true
}

// wait is how long the present message is not to be written, 0 if it is.
func (o *messages) wait(now time.Time) time.Duration {
	i := slices.IndexFunc(o.written, func(m message) bool { return m.text == o.present })
	if i < 0 {
		return 0
	}
	repeat := o.written[i].at.Add(Repeat).Sub(now)
	if i < len(o.written)-1 {
		repeat = min(repeat, o.since.Add(Settle).Sub(now))
	}
	return max(0, repeat)
}

// Held returns when to call New again for the present message because it is not the last one that
// was written, 0 if it is.
func (d *Dedup) Held(key string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.objects[key]
	if o == nil || len(o.written) == 0 || o.written[len(o.written)-1].text == o.present {
		return 0
	}
	return max(o.wait(time.Now()), time.Millisecond)
}

// Written reports whether a message about the object was written and not resolved.
func (d *Dedup) Written(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.objects[key]
	return o != nil && len(o.written) > 0
}

// Retract takes back that the last message was written.
func (d *Dedup) Retract(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.objects[key]; o != nil && len(o.written) > 0 {
		o.written = o.written[:len(o.written)-1]
	}
}

// Resolve forgets the messages about the object, and reports whether there were any: what they told
// is over.
func (d *Dedup) Resolve(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.objects[key]
	delete(d.objects, key)
	return o != nil && len(o.written) > 0
}

// Forget is Resolve for an object that is gone.
func (d *Dedup) Forget(key string) { d.Resolve(key) }
