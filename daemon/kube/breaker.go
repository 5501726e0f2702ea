package kube

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// longestProbe is how long one sieve asks for all.
const longestProbe = 5 * time.Second

// outage keeps the sieves of one client from asking a server that is away one after the other: until a request has a
// response, one asks for all of them. A server that comes back refuses for some seconds (403 until it has read its roles,
// 429 until its watch caches are full), and 100 nodes with four sieves each keep it from more.
type breaker struct {
	mu      sync.Mutex
	open    bool          // the last connection broke, and no request had a response since
	probe   chan struct{} // closed when the sieve that asks has its response; nil while none asks
	retryAt time.Time     // when the next may ask
	backoff backoff
}

// enter waits until the server may be asked, ctx ends, or another sieve has had no response for longestProbe.
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
			pause(ctx, until)
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

// left notes that a sieve has ended its requests, with the error of the last one; nil is none.
func (b *breaker) done(err error) {
	var status apierrors.APIStatus
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil && !errors.As(err, &status) {
		b.open = true
	}
	if now := time.Now(); b.open && err != nil && now.After(b.retryAt) { // what failed together counts once
		b.retryAt = now.Add(b.backoff.next(err))
	}
	b.release()
}

// ended notes a response.
func (b *breaker) responded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open {
		b.open = false
		b.backoff.reset()
		b.release()
	}
}

// release lets the next sieve ask.
func (b *breaker) release() {
	if b.probe != nil {
		close(b.probe)
		b.probe = nil
	}
}
