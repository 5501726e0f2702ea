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

// A resource of which this node has few objects is read whole by the watch itself: the server sends what there is, a
// bookmark that marks the end, and then the changes (KEP-3157, "watch-list"; on by default from Kubernetes 1.34 on,
// apiserver's pkg/features, WatchList). That is one request for a list and a watch, and wherever the next watch might not
// continue the same history it takes the place of the witness, too. Lists are compressed, events are not: a list that
// may be long, the claims of the whole cluster, is read by pages first, and with the watch while it is short.
//
// A server that does not know it refuses (422), or sends the objects and never the mark: then the sieve lists.

// errNoEnd: a server that took a watch-list and does not tell where the list ends.
var errNoEnd = errors.New("the initial events did not end")

// WatchList has the sieve read the list with the watch. It must be called before Run, for a resource of which there are few
// objects here.
func (s *Informer[T]) WatchList() *Informer[T] {
	s.fewObjects = true
	return s
}

// short is how many objects the last list may have had that is read with the watch the next time: some 3 MB of claims.
const shortList = 2000

// streams reports whether the sieve reads a list with the watch.
func (s *Informer[T]) useWatchList() bool {
	return !s.noWatchList && s.failedWatchLists < 2 && (s.fewObjects || s.listLength > 0 && s.listLength <= shortList)
}

// refusesWatchList reports whether the server's error is about the watch-list itself (apimachinery,
// apis/meta/internalversion/validation, ValidateListOptions).
func refusesWatchList(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }

// initialOptions makes a watch begin with the whole list, as young as the server can say.
func initialOptions(o metav1.ListOptions) metav1.ListOptions {
	yes := true
	o.ResourceVersion, o.ResourceVersionMatch, o.SendInitialEvents = "", metav1.ResourceVersionMatchNotOlderThan, &yes
	return o
}

// read notes an event before the end of a watch-list, with the keys of what is kept in fresh, and reports whether it is
// the end. Objects come in the order of their keys, and what changes meanwhile comes after all of them: the order of
// arrival counts, and no version.
func (s *Informer[T]) initialEvent(event watch.Event, fresh map[string]bool) (end bool, err error) {
	s.markAlive()
	if event.Type == watch.Bookmark {
		return s.endOfList(event.Object, fresh)
	}
	item, ok := event.Object.(T)
	if !ok {
		return false, nil
	}
	s.lastChange.observe(item)
	s.listed++
	if event.Type == watch.Deleted || !s.filter(item) {
		delete(fresh, keyOf(item))
		s.remove(item)
		return false, nil
	}
	fresh[keyOf(item)] = true
	s.store(item)
	return false, nil
}

// finish ends the list if the bookmark is its end.
func (s *Informer[T]) endOfList(bookmark runtime.Object, fresh map[string]bool) (end bool, err error) {
	about, err := meta.Accessor(bookmark)
	if err != nil {
		return false, fmt.Errorf("bookmark: %w", err)
	}
	if about.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
		return false, nil
	}
	s.version, s.listLength = about.GetResourceVersion(), s.listed
	s.removeUnlisted(fresh)
	s.markSynced()
	return true, nil
}

// readAll reads a watch-list to its end, and reports whether that came. Events may take as long as they like together,
// and each no longer than an answer.
func (s *Informer[T]) readInitialEvents(ctx context.Context, w watch.Interface) (ended bool, err error) {
	fresh := map[string]bool{}
	s.lastChange, s.listed = change{}, 0
	ended, err = firstEvents(ctx, w, s.timings.response, func(event watch.Event) (bool, error) { return s.initialEvent(event, fresh) })
	if errors.Is(err, errOverdue) {
		s.noWatchList = true // for good
		return false, fmt.Errorf("watch: %w within %s", errNoEnd, s.timings.response)
	}
	return ended, err
}
