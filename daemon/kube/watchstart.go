package kube

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// A watch-list (KEP-3157) reads a whole resource with the watch: the server sends an event for each object, a bookmark
// that marks the end, and then the changes. It is on by default from Kubernetes 1.34 on (apiserver, pkg/features,
// WatchList). It is one request in place of two, and it also replaces the verification of the history (watchstart.go).
//
// The server compresses lists, and watch-lists only from Kubernetes 1.37 on. Therefore a list that
// may be long, such as the claims of the whole cluster, is read by pages at first, and with the
// watch while it is short.
//
// A server without the feature refuses (422), or sends the objects and never the mark: then the
// informer lists.

// errNoEnd: the server accepted a watch-list and does not mark the end of the list.
var errNoEnd = errors.New("the initial events did not end")

// WatchList makes the informer read the whole resource with the watch. It must be called before
// Run, for a resource with few objects on this node.
func (s *Informer[T]) WatchList() *Informer[T] {
	s.fewObjects = true
	return s
}

// shortList is the longest list that is read with the watch the next time, in objects: some 3 MB of
// claims.
const shortList = 2000

// useWatchList reports whether the informer reads the list with the watch.
func (s *Informer[T]) useWatchList() bool {
	return !s.noWatchList && s.failedWatchLists < 2 && (s.fewObjects || s.listLength > 0 && s.listLength <= shortList)
}

// refusesWatchList reports whether a server's error is about the watch-list itself (apimachinery,
// pkg/apis/meta/internalversion/validation, ValidateListOptions).
func refusesWatchList(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }

// initialOptions makes a watch start with the whole list, at the latest version that the server
// knows.
func initialOptions(o metav1.ListOptions) metav1.ListOptions {
	yes := true
	o.ResourceVersion, o.ResourceVersionMatch, o.SendInitialEvents = "", metav1.ResourceVersionMatchNotOlderThan, &yes
	return o
}

// initialEvent applies an event before the end of a watch-list, adds the key of an object that
// passes the filter to listed, and reports whether the event is the end. Objects come in the order
// of their keys, and changes that happen meanwhile come after all of them: the order of arrival
// counts, not the version.
func (s *Informer[T]) initialEvent(event watch.Event, listed map[string]bool) (end bool, err error) {
	s.markAlive()
	if event.Type == watch.Bookmark {
		return s.endOfList(event.Object, listed)
	}
	item, ok := event.Object.(T)
	if !ok {
		return false, nil
	}
	s.lastChange.observe(item)
	s.listed++
	if event.Type == watch.Deleted || !s.filter(item) {
		delete(listed, keyOf(item))
		s.remove(item)
		return false, nil
	}
	listed[keyOf(item)] = true
	s.store(item)
	return false, nil
}

// endOfList ends the list if the bookmark marks its end, and reports whether it does.
func (s *Informer[T]) endOfList(bookmark runtime.Object, listed map[string]bool) (end bool, err error) {
	object, err := meta.Accessor(bookmark)
	if err != nil {
		return false, fmt.Errorf("bookmark: %w", err)
	}
	if object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
		return false, nil
	}
	s.version, s.listLength = object.GetResourceVersion(), s.listed
	s.removeUnlisted(listed)
	s.markSynced()
	return true, nil
}

// readInitialEvents reads a watch-list to its end, and reports whether the end came. There is no
// limit for all events together; each may take as long as timings.response.
func (s *Informer[T]) readInitialEvents(ctx context.Context, w watch.Interface) (ended bool, err error) {
	listed := map[string]bool{}
	s.lastChange, s.listed = change{}, 0
	ended, err = firstEvents(ctx, w, s.timings.response, func(event watch.Event) (bool, error) { return s.initialEvent(event, listed) })
	if errors.Is(err, errOverdue) {
		s.noWatchList = true // until the process ends
		return false, fmt.Errorf("watch: %w within %s", errNoEnd, s.timings.response)
	}
	return ended, err
}

// watchStart is where a watch starts.
type watchStart int

const (
	fromVersion       watchStart = iota // at s.version, which is of the server's history
	fromLastChange                      // just before the last known change, which the server must send again
	withInitialEvents                   // with the whole list (watchstart.go)
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
	if plan.Newer(o.GetResourceVersion(), c.version, true) {
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
	case event.Type == watch.Bookmark &&
		!plan.Newer(item.GetResourceVersion(), s.lastChange.versionBefore(), true):
		return false, nil
	case event.Type == watch.Bookmark, !s.lastChange.continues(change{item.GetUID(), item.GetResourceVersion()}):
		return false, errOtherHistory
	}
	s.version = s.lastChange.version
	return true, nil
}
