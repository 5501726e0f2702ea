package controller

import (
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/words"
)

// ledger remembers, per claim or volume UID, when it was first seen, what was last said about it and
// whether a directory was made that no volume object points to yet. It forgets with the object.
type ledger struct {
	mu      *sync.Mutex
	entries map[string]*entry
}

type entry struct {
	first       time.Time
	said        string // as words.Same leaves it
	saidAt      time.Time
	node        string    // that is chosen for the claim
	since       time.Time // when it was seen first
	queued      bool      // backlog was asked for since then
	backlog     time.Duration
	unpublished string    // the pool that has its directory
	published   time.Time // when its volume object was created; zero: it was not
}

// repeat is how long the same words are not said again about the same object. Events live an hour
// (kube-apiserver --event-ttl), so a reason that lasts stays visible.
const repeat = 15 * time.Minute

func newLedger() ledger { return ledger{mu: &sync.Mutex{}, entries: map[string]*entry{}} }

func (l ledger) get(uid string) *entry {
	e := l.entries[uid]
	if e == nil {
		e = &entry{first: time.Now()}
		l.entries[uid] = e
	}
	return e
}

// seen answers how long ago the object was first seen.
func (l ledger) seen(uid string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.get(uid).first)
}

// chosen answers how long ago a claim was first seen with this node chosen for it, "" for none.
func (l ledger) chosen(uid, node string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.get(uid)
	if e.node != node || e.since.IsZero() {
		e.node, e.since, e.queued = node, time.Now(), false
	}
	return time.Since(e.since)
}

// backlog is what arrive answered when the claim came as it is now.
func (l ledger) backlog(uid string, arrive func() time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.get(uid)
	if !e.queued {
		e.queued, e.backlog = true, arrive()
	}
	return e.backlog
}

// news says whether a message was not said about the object lately, whatever its numbers, and notes it.
func (l ledger) news(uid, message string) bool {
	message = words.Line(words.Same(message), words.MessageMax)
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.get(uid)
	if e.said == message && time.Since(e.saidAt) < repeat {
		return false
	}
	e.said, e.saidAt = message, time.Now()
	return true
}

// mended says whether something was said about the object that is not so any more, and forgets it.
func (l ledger) mended(uid string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[uid]
	if e == nil || e.said == "" {
		return false
	}
	e.said = ""
	return true
}

// since answers how long ago work on the object began, 0 if it did not.
func (l ledger) since(uid string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[uid]; e != nil {
		return time.Since(e.first)
	}
	return 0
}

// has says whether the object is in the ledger.
func (l ledger) has(uid string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, there := l.entries[uid]
	return there
}

// begin says whether work on the object was not begun yet, and notes that it is now.
func (l ledger) begin(uid string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, begun := l.entries[uid]
	l.get(uid)
	return !begun
}

// made notes that a directory may exist in pool for which no volume object was created yet.
func (l ledger) made(uid, pool string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.get(uid).unpublished = pool
}

// published notes that the directory has its volume object, and answers how long that took.
func (l ledger) published(uid string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.get(uid)
	e.unpublished, e.published = "", time.Now()
	return time.Since(e.first)
}

// lag is how long a volume that was created, or a claim that was changed, may take to come through the
// watch.
const lag = 5 * time.Second

// awaited answers how long to wait for the watch to bring a claim's volume, 0 if it was not published
// lately. Until then the claim would be provisioned once more, for two requests and an fsync.
func (l ledger) awaited(uid string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[uid]; e != nil && !e.published.IsZero() {
		return max(0, lag-time.Since(e.published))
	}
	return 0
}

// busy says whether a claim is being provisioned, or was just now.
func (l ledger) busy(uid string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[uid]
	return e != nil && (e.unpublished != "" || !e.published.IsZero() && time.Since(e.published) < lag)
}

// left takes back what made noted, and answers the pool.
func (l ledger) left(uid string) (pool string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[uid]; e != nil {
		pool, e.unpublished = e.unpublished, ""
	}
	return pool
}

// forget drops the object, and answers the pool in which it left an unpublished directory, if any.
func (l ledger) forget(uid string) (pool string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[uid]; e != nil {
		pool = e.unpublished
	}
	delete(l.entries, uid)
	return pool
}

// same is what two messages have in common that differ in numbers alone.
func same(message string) string { return words.Same(message) }
