package kube

import (
	"context"
	"errors"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// A server whose data was restored counts versions on from an earlier one, and soon it has again those that were known
// of the lost days: a number alone does not tell one history from another. An object and the version at which
// it was written or deleted do: in another history that would have to happen at the very same version.
//
// The witness of a sieve is the last change that it knows. A watch that might continue another history begins just
// before it, and the first event must be that change again: then both histories are the same up to there, which is all
// that the sieve knows, and whatever comes next is new. (What is older than the server's watch cache ends with 410 and
// a new list: apiserver, storage/cacher, watchCache.getAllEventsSinceLocked.) It costs no request of its own.

// witness is an object at the moment of a change.
type change struct {
	uid     types.UID
	version string
}

// saw notes a change, or an object in a list.
func (w *change) observe(o metav1.Object) {
	if newer(o.GetResourceVersion(), w.version) {
		*w = change{o.GetUID(), o.GetResourceVersion()}
	}
}

// before is the version just before the witness, "" if there is none.
func (w change) versionBefore() string {
	version, err := strconv.ParseUint(w.version, 10, 64)
	if err != nil || version < 2 { // version 0 is "any"
		return ""
	}
	return strconv.FormatUint(version-1, 10)
}

// errOtherHistory: the server's history is not the known one, or does not reach as far yet.
var errOtherHistory = errors.New("another history")

// resume waits for the witness, which a watch that began before it has to bring first, and reports whether it did.
// Anything else, and silence, is another history, or a server that has yet to reach that version.
func (s *Informer[T]) verifyHistory(ctx context.Context, w watch.Interface) (proven bool, err error) {
	proven, err = firstEvents(ctx, w, s.timings.verify, s.isLastChange)
	if errors.Is(err, errOverdue) || errors.Is(err, errOtherHistory) {
		return false, nil
	}
	return proven, err
}

// proves reports whether an event is the witness. A bookmark may come before it.
func (s *Informer[T]) isLastChange(event watch.Event) (proven bool, err error) {
	s.markAlive()
	item, ok := event.Object.(T)
	switch {
	case !ok:
		return false, nil
	case event.Type == watch.Bookmark && !newer(item.GetResourceVersion(), s.lastChange.versionBefore()):
		return false, nil
	case event.Type == watch.Bookmark, change{item.GetUID(), item.GetResourceVersion()} != s.lastChange:
		return false, errOtherHistory
	}
	s.version = s.lastChange.version
	return true, nil
}
