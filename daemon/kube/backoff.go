package kube

import (
	"context"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

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

// pause waits, and reports whether it did so to the end: ctx may end before.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
