// Package wake has goroutines wait for a time, for news, or for the end of a context. It does not
// know what the news are.
package wake

import (
	"context"
	"time"
)

// Signal wakes who waits for a channel of one item, now or when it waits next. It never blocks.
func Signal(news chan<- struct{}) {
	select {
	case news <- struct{}{}:
	default:
	}
}

// Wait waits for d, or until there are news, or ctx ends, which it reports by false. news may be
// nil.
func Wait(ctx context.Context, d time.Duration, news <-chan struct{}) bool {
	select {
	case <-ctx.Done():
	case <-news:
	case <-time.After(d):
	}
	return ctx.Err() == nil
}
