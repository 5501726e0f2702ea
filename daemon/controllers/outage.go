package controllers

import (
	"sync"
	"time"
)

const (
	// explainAfter is how long a pool is closed before its claims are told why they wait. Most
	// closures are shorter: a remount, a filesystem that was full for a moment. Then 500 waiting
	// claims have no event, and the node has one.
	explainAfter = 3 * time.Second
	// openFor is how long a pool has to be open for its closure to be over. One that opens and
	// closes all the time is closed from the first time on, so that its claims are told.
	openFor = 10 * time.Second
)

// outage is since when a pool is closed.
type outage struct {
	mu            sync.Mutex
	began, opened time.Time
}

// note notes whether the pool is open now.
func (o *outage) note(open bool, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case open && o.opened.IsZero():
		o.opened = now
	case !open && (o.began.IsZero() || !o.opened.IsZero() && now.Sub(o.opened) >= openFor):
		o.began, o.opened = now, time.Time{}
	case !open:
		o.opened = time.Time{}
	}
}

// unexplained is how long the claims of a closed pool are not told why they wait, from now on.
func (o *outage) unexplained(now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return max(0, explainAfter-now.Sub(o.began))
}
