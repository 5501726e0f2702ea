package kube

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// longestProbe is how long the other informers wait for the response to one informer's request.
const longestProbe = 5 * time.Second

// breaker is a circuit breaker that the informers of one client share. While the API server is
// away, one informer at a time sends a request, and the others wait until a request has a response.
// A server that comes back refuses requests for some seconds (403 until it has read its roles, 429
// until its watch caches are full), and 100 nodes with four informers each would prolong that.
type breaker struct {
	mu      sync.Mutex
	open    bool          // the last connection broke, and no request has had a response since
	probe   chan struct{} // closed when the request of the one informer is over; nil while there is none
	retryAt time.Time     // of the next probe
	backoff backoff
	early   chan struct{} // closed when those that wait are to send their requests now; nil while none waits
}

// pause waits before an informer's next request, and reports whether it did so to the end.
func (b *breaker) pause(ctx context.Context, d time.Duration) bool {
	b.mu.Lock()
	if b.early == nil {
		b.early = make(chan struct{})
	}
	early := b.early
	b.mu.Unlock()
	select {
	case <-ctx.Done():
		return false
	case <-early:
		return false
	case <-time.After(d):
		return true
	}
}

// retry ends all pauses: what the requests failed with was mended.
func (b *breaker) retry() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retryAt = time.Time{}
	b.backoff.reset()
	if b.early != nil {
		close(b.early)
		b.early = nil
	}
}

// wait returns when the caller may send a request: the breaker is closed, the caller is the one
// that probes, another informer's probe has taken longestProbe, or ctx has ended.
func (b *breaker) wait(ctx context.Context) {
	for ctx.Err() == nil {
		b.mu.Lock()
		if !b.open {
			b.mu.Unlock()
			return
		}
		probe, until := b.probe, time.Until(b.retryAt)
		if probe == nil && until <= 0 {
			b.probe = make(chan struct{})
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		if probe == nil {
			b.pause(ctx, until)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(longestProbe):
			return
		case <-probe:
		}
	}
}

// done records that an informer's requests are over, with the error of the last one, or nil. An
// error that is not the server's own opens the breaker.
func (b *breaker) done(err error) {
	var status apierrors.APIStatus
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil && !errors.As(err, &status) {
		b.open = true
	}
	if now := time.Now(); b.open && err != nil && now.After(b.retryAt) { // requests that fail together count once
		b.retryAt = now.Add(b.backoff.next(err))
	}
	b.endProbe()
}

// suspect opens the breaker for a watch that ended before its time without an error, as those of
// all informers do when the server goes away: the next request is a probe, which need not wait.
func (b *breaker) suspect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = true
}

// responded records a response, which closes the breaker.
func (b *breaker) responded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open {
		b.open = false
		b.backoff.reset()
		b.endProbe()
	}
}

// endProbe lets the next informer probe.
func (b *breaker) endProbe() {
	if b.probe != nil {
		close(b.probe)
		b.probe = nil
	}
}

const (
	firstDelay = 500 * time.Millisecond
	// longestDelay is how long an API server that came back may go unnoticed.
	longestDelay = 30 * time.Second
)

// backoff is how long to wait before the next try: at random, so that the daemons of a cluster do
// not come back all at once, and twice as long each time.
type backoff struct{ tries int }

func (b *backoff) reset() { b.tries = 0 }

// next is between half of the full delay and the whole. A server that says how long to wait is
// obeyed, up to longestDelay.
func (b *backoff) next(err error) time.Duration {
	full := longestDelay
	if b.tries < 6 {
		full = min(firstDelay<<b.tries, longestDelay)
	}
	b.tries++
	delay := full/2 + rand.N(full/2+1)
	if seconds, said := apierrors.SuggestsClientDelay(err); said {
		delay = max(delay, min(time.Duration(seconds)*time.Second, longestDelay))
	}
	return delay
}
