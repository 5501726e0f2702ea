package kube

import (
	"context"
	"errors"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// A server whose data was restored from a backup counts resource versions on from an earlier one.
// Soon it reaches again the versions that an informer knows from the lost days, so that a version
// alone does not identify a history. An object together with the version of its last write or
// deletion does: in another history the same object would have to be written at the very same
// version.
//
// An informer keeps the last change that it knows. When a watch might continue another history, it
// starts just before that change, and its first event must be that change again: then both
// histories are the same up to there, which is all that the informer knows, and what follows is
// new. A version older than the server's watch cache is refused with 410 and leads to a new list
// (apiserver, pkg/storage/cacher, watchCache.getAllEventsSinceLocked). The verification costs no
// request of its own. TestServerRestoredAndOvertaken shows it with a restored API server.

// change is an object at the moment of a write or deletion. The zero change is none.
type change struct {
	uid     types.UID
	version string
}

// continues reports whether a watch that begins just before the last known change goes on in the
// same history, by its first event.
func (c change) continues(first change) bool { return c == first }

// Continues is that rule for the last change that is known, and for the one that the server has at
// that version: an object's UID and its resource version each.
func Continues(uid, version, firstUID, firstVersion string) bool {
	return change{types.UID(uid), version}.continues(change{types.UID(firstUID), firstVersion})
}

// observe replaces the change by that of o, if that is newer.
func (c *change) observe(o metav1.Object) {
	if newer(o.GetResourceVersion(), c.version) {
		*c = change{o.GetUID(), o.GetResourceVersion()}
	}
}

// versionBefore returns the version just before the change, "" if there is none.
func (c change) versionBefore() string {
	version, err := strconv.ParseUint(c.version, 10, 64)
	if err != nil || version < 2 { // a watch from version 0 starts anywhere
		return ""
	}
	return strconv.FormatUint(version-1, 10)
}

// errOtherHistory: the server's history is not the known one, or has not reached the last known
// change.
var errOtherHistory = errors.New("another history")

// verifyHistory waits for the last known change, and reports whether it came. Another event, or
// silence, means another history, or a server that has not reached that version.
func (s *Informer[T]) verifyHistory(ctx context.Context, w watch.Interface) (verified bool, err error) {
	verified, err = firstEvents(ctx, w, s.timings.verify, s.isLastChange)
	if errors.Is(err, errOverdue) || errors.Is(err, errOtherHistory) {
		return false, nil
	}
	return verified, err
}

// isLastChange reports whether an event is the last known change. A bookmark may come before it;
// any other event is errOtherHistory.
func (s *Informer[T]) isLastChange(event watch.Event) (is bool, err error) {
	s.markAlive()
	item, ok := event.Object.(T)
	switch {
	case !ok:
		return false, nil
	case event.Type == watch.Bookmark && !newer(item.GetResourceVersion(), s.lastChange.versionBefore()):
		return false, nil
	case event.Type == watch.Bookmark, !s.lastChange.continues(change{item.GetUID(), item.GetResourceVersion()}):
		return false, errOtherHistory
	}
	s.version = s.lastChange.version
	return true, nil
}
