package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// start is where a watch begins.
type watchStart int

const (
	fromVersion       watchStart = iota // which is known to be of the server's history
	fromLastChange                      // which the watch has to bring again
	withInitialEvents                   // with the whole list
)

// begin reads what a watch has to bring first, and reports whether it did.
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

// errOverdue: an event did not come in its time.
var errOverdue = errors.New("overdue")

// firstEvents gives take a watch's events until take reports the last of them, and reports whether that came. Each may
// take no longer than within. It returns take's error, errOverdue, errCutShort if the watch ends, the server's
// *apierrors.StatusError, or nil if ctx ends.
func firstEvents(ctx context.Context, w watch.Interface, within time.Duration, take func(watch.Event) (last bool, err error)) (came bool, err error) {
	overdue := time.NewTimer(within)
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
			overdue.Reset(within)
		}
	}
}
