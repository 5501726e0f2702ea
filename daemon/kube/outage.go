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
type outage struct {
	mu      sync.Mutex
	away    bool          // the last connection broke, and no request had a response since
	probe   chan struct{} // closed when the sieve that asks has its response; nil while none asks
	notTill time.Time     // when the next may ask
	wait    backoff
}

// enter waits until the server may be asked, ctx ends, or another sieve has had no response for longestProbe.
func (o *outage) enter(ctx context.Context) {
	for ctx.Err() == nil {
		o.mu.Lock()
		if !o.away {
			o.mu.Unlock()
			return
		}
		probe, until := o.probe, time.Until(o.notTill)
		if probe == nil && until <= 0 {
			o.probe = make(chan struct{})
			o.mu.Unlock()
			return
		}
		o.mu.Unlock()
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
func (o *outage) left(err error) {
	var status apierrors.APIStatus
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil && !errors.As(err, &status) {
		o.away = true
	}
	if now := time.Now(); o.away && err != nil && now.After(o.notTill) { // what failed together counts once
		o.notTill = now.Add(o.wait.next(err))
	}
	o.release()
}

// ended notes a response.
func (o *outage) ended() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.away {
		o.away = false
		o.wait.reset()
		o.release()
	}
}

// release lets the next sieve ask.
func (o *outage) release() {
	if o.probe != nil {
		close(o.probe)
		o.probe = nil
	}
}
