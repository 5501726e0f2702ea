package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// watchStart is where a watch starts.
type watchStart int

const (
	fromVersion       watchStart = iota // at s.version, which is of the server's history
	fromLastChange                      // just before the last known change, which the server must send again
	withInitialEvents                   // with the whole list (watchlist.go)
)

// verifyStart reads the events that a watch must begin with, and reports whether the server sent
// them.
func (s *Informer[T]) verifyStart(ctx context.Context, w watch.Interface, from watchStart) (begun bool, err error) {
	switch from {
	case fromLastChange:
		return s.verifyHistory(ctx, w)
	case withInitialEvents:
		return s.readInitialEvents(ctx, w)
	default:
		return true, nil
	}
}

// errOverdue: an event did not come in time.
var errOverdue = errors.New("overdue")

// firstEvents passes the events of a watch to take until take reports the last of them, and reports
// whether that one came. Each event may take as long as limit. The error is that of take,
// errOverdue, errCutShort if the watch ends, or the server's *apierrors.StatusError. It is nil if
// ctx ends.
func firstEvents(ctx context.Context, w watch.Interface, limit time.Duration, take func(watch.Event) (last bool, err error)) (came bool, err error) {
	overdue := time.NewTimer(limit)
	defer overdue.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case <-overdue.C:
			return false, errOverdue
		case event, open := <-w.ResultChan():
			switch {
			case !open:
				return false, fmt.Errorf("watch: %w", errCutShort)
			case event.Type == watch.Error:
				return false, fmt.Errorf("watch: %w", apierrors.FromObject(event.Object))
			}
			if last, err := take(event); last || err != nil {
				return last, err
			}
			overdue.Reset(limit)
		}
	}
}
