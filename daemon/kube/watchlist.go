package kube

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// A watch-list (KEP-3157) reads a whole resource with the watch: the server sends an event for each object, a bookmark
// that marks the end, and then the changes. It is on by default from Kubernetes 1.34 on (apiserver, pkg/features,
// WatchList). It is one request in place of two, and it also replaces the verification of the history (history.go).
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
