package report

import (
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/words"
)

// Repeat is how long the same message is not written again about the same object. The API server keeps an event for
// an hour (kube-apiserver --event-ttl), so a reason that lasts stays visible.
const Repeat = 15 * time.Minute

// Dedup remembers the last message about each object, by a key that the caller chooses. The zero value is ready for
// use, and all methods may be called at the same time. An entry stays until Resolve or Forget.
type Dedup struct {
	mu   sync.Mutex
	last map[string]message
}

type message struct {
	text string // as words.Same leaves it: without its numbers
	at   time.Time
}

// New reports whether a message is to be written: it is not the last one about the object, apart from its numbers, or
// that was written longer than Repeat ago. If so, it is the last one from now on.
func (d *Dedup) New(key, text string) bool {
	text = words.Line(words.Same(text), words.MessageMax)
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if last, known := d.last[key]; known && last.text == text && now.Sub(last.at) < Repeat {
		return false
	}
	if d.last == nil {
		d.last = map[string]message{}
	}
	d.last[key] = message{text, now}
	return true
}

// Written reports whether a message about the object was written and not resolved.
func (d *Dedup) Written(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, known := d.last[key]
	return known
}

// Resolve forgets the last message about the object, and reports whether there was one: what it told is over.
func (d *Dedup) Resolve(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, known := d.last[key]
	delete(d.last, key)
	return known
}

// Forget is Resolve for an object that is gone, or for a message that was not written after all.
func (d *Dedup) Forget(key string) { d.Resolve(key) }
