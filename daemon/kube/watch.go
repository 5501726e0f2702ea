package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// StaleAfter is how long a sieve that is well may not have heard anything: the longest watch, and
// what it takes to notice that it did not end. From a server that sends bookmarks it hears every minute,
// and gives a watch up that fell silent after the first of them in less than four.
const StaleAfter = 11 * time.Minute

// pace is the times of a sieve; tests have shorter ones.
type timings struct {
	pageSize int64         // objects in a page of a list
	watch    time.Duration // a watch is asked to last between this and twice this
	response time.Duration // how long a watch may take to begin, or to end after its time
	settle   time.Duration // a watch that lived so long was a good one
	verify   time.Duration // how long a watch may take to bring the last known change
	// bookmark is how long a watch that has brought a bookmark may bring nothing. The API server sends
	// one a minute, whatever happens (bookmarkFrequency in apiserver, pkg/storage/cacher).
	bookmark time.Duration
}

var defaultTimings = timings{pageSize: 500, watch: 5 * time.Minute, response: 30 * time.Second, settle: 5 * time.Second, verify: 10 * time.Second, bookmark: 3 * time.Minute}

var (
	errNoResponse = errors.New("no response")
	errCutShort   = errors.New("the watch ended as soon as it had begun")
	errSilent     = errors.New("the watch fell silent")
)

// Run follows the resource until ctx ends, whatever happens. It must be called once.
//
// A watch that ends is begun again where it ended. One that cannot be begun, or ends with an error,
// is followed by a new list: the server may have forgotten what happened meanwhile (410 Gone), or
// may be one whose data was restored from an earlier day. Such a server takes a watch that begins at a
// version which it has yet to reach, and says nothing, or one at a version which it has reached again, and says
// nothing of what came before: unless the last watch ended at its time and had brought something, the next one
// has to show first that the server has the history that is known (witness.go).
func (s *Informer[T]) Run(ctx context.Context) {
	var wait backoff
	for failures, listed := 0, false; ctx.Err() == nil; {
		var err error
		s.breaker.wait(ctx)
		listed, err = s.listAndWatch(ctx, listed, func() { failures = 0; s.onHealthy() })
		if ctx.Err() != nil {
			return
		}
		s.breaker.done(err)
		if err != nil {
			failures++
			// Once is nothing: a list expires, a server restarts, a connection breaks.
			if failures > 1 {
				s.onError(err)
			}
		}
		if time.Since(s.started) >= s.timings.settle {
			wait.reset()
			if err == nil {
				continue
			}
		}
		pause(ctx, wait.next(err))
	}
}

// turn is one watch, and the list before it if that is needed. It answers whether the next watch can
// go on from there.
func (s *Informer[T]) listAndWatch(ctx context.Context, listed bool, healthy func()) (goOn bool, err error) {
	s.started = time.Now()
	if listed && s.mustVerify && !s.fewObjects && s.lastChange.versionBefore() != "" {
		return s.watch(ctx, healthy, fromLastChange)
	}
	if s.useWatchList() && (!listed || s.mustVerify) {
		goOn, err = s.watch(ctx, healthy, withInitialEvents)
		if s.failedWatchLists++; !errors.Is(err, errNoResponse) && !errors.Is(err, errCutShort) {
			s.failedWatchLists = 0
		}
		if !s.noWatchList || err != nil {
			return goOn, err
		}
		listed = false
	}
	if !listed || s.mustVerify {
		if err := s.list(ctx); err != nil {
			return false, err
		}
	}
	s.started = time.Now()
	return s.watch(ctx, healthy, fromVersion)
}

// list reads all pages. Objects are told as they come; those that are gone, after the last page.
func (s *Informer[T]) list(ctx context.Context) error {
	fresh := map[string]bool{}
	s.lastChange, s.listed = change{}, 0
	for options := (metav1.ListOptions{Limit: s.timings.pageSize}); ; {
		page, err := s.source.List(ctx, options)
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		s.markAlive()
		if err := s.addPage(page, fresh); err != nil {
			return fmt.Errorf("list: %w", err)
		}
		about, err := meta.ListAccessor(page)
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		s.version = about.GetResourceVersion()
		if options.Continue = about.GetContinue(); options.Continue == "" {
			break
		}
	}
	s.listLength, s.failedWatchLists = s.listed, 0
	s.removeUnlisted(fresh)
	s.markSynced()
	s.mustVerify = false
	return nil
}

func (s *Informer[T]) markSynced() {
	select {
	case <-s.synced:
	default:
		close(s.synced)
	}
}

// watch begins a watch and follows it to its end. It reports whether the next watch can go on from there. well is
// called when this one works.
func (s *Informer[T]) watch(ctx context.Context, healthy func(), from watchStart) (goOn bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.mustVerify = true
	lasts := s.timings.watch + rand.N(s.timings.watch)
	seconds := int64(lasts/time.Second) + 1
	guard := time.AfterFunc(s.timings.response, func() { cancel(errNoResponse) })
	options := metav1.ListOptions{ResourceVersion: s.version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds}
	switch from {
	case fromLastChange:
		options.ResourceVersion = s.lastChange.versionBefore()
	case withInitialEvents:
		options = initialOptions(options)
	}
	w, err := s.source.Watch(ctx, options)
	guard.Stop()
	switch {
	case from == withInitialEvents && refusesWatchList(err):
		s.noWatchList = true
		return false, nil
	case context.Cause(ctx) == errNoResponse && err != nil:
		return false, fmt.Errorf("watch: %w within %s", errNoResponse, s.timings.response)
	case err != nil:
		// A server that has too much to do is not asked for the whole list on top.
		return apierrors.IsTooManyRequests(err), fmt.Errorf("watch: %w", err)
	}
	defer w.Stop()
	if begun, err := s.verifyStart(ctx, w, from); !begun {
		return false, err
	}
	s.watched.Store(true)
	defer s.watched.Store(false)
	goOn, silent, err := s.handleEvents(ctx, w, lasts, healthy)
	if err != nil {
		return false, fmt.Errorf("watch: %w", err)
	}
	// A process that was stopped meanwhile, or a watch that nobody ended, is late.
	took := time.Since(s.started)
	s.mustVerify = silent || took < lasts || took > lasts+s.timings.response
	return goOn, nil
}

// follow takes events until the watch ends. silent says that there were none at all, bookmarks
// included.
func (s *Informer[T]) handleEvents(ctx context.Context, w watch.Interface, lasts time.Duration, healthy func()) (goOn, silent bool, err error) {
	began := time.Now()
	// At first a watch may be silent until its time is over; once it brought a bookmark, for so long.
	overdue, settled, bookmarks := time.NewTimer(lasts+s.timings.response), time.NewTimer(s.timings.settle), false
	defer overdue.Stop()
	defer settled.Stop()
	for silent = true; ; {
		select {
		case <-ctx.Done():
			return false, silent, nil
		case <-s.relist:
			return false, silent, nil
		case <-overdue.C:
			return false, silent, errSilent
		case <-settled.C:
			s.markAlive()
			healthy()
		case event, open := <-w.ResultChan():
			switch {
			case !open && silent && time.Since(began) < s.timings.settle:
				// client-go makes an empty watch of a connection that broke before the answer.
				return false, silent, errCutShort
			case !open:
				return true, silent, nil
			case event.Type == watch.Error:
				return false, silent, apierrors.FromObject(event.Object)
			}
			if silent {
				healthy()
			}
			silent = false
			if bookmarks = bookmarks || event.Type == watch.Bookmark; bookmarks {
				overdue.Reset(s.timings.bookmark)
			}
			s.handleEvent(event)
		}
	}
}

// event notes one event. An event that is not newer than what is known already was sent twice.
func (s *Informer[T]) handleEvent(event watch.Event) {
	s.markAlive()
	item, ok := event.Object.(T)
	if !ok || !newer(item.GetResourceVersion(), s.version) {
		return
	}
	s.version = item.GetResourceVersion()
	if event.Type == watch.Bookmark {
		return
	}
	s.lastChange.observe(item)
	if event.Type == watch.Deleted || !s.filter(item) {
		s.remove(item)
		return
	}
	s.store(item)
}

func (s *Informer[T]) markAlive() {
	s.contact.Store(time.Now().UnixNano())
	s.breaker.responded()
}

// newer compares resource versions, which are numbers that only grow (Kubernetes 1.35, KEP-5504).
// One that is no number counts as newer.
func newer(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX != nil || errY != nil || x > y
}
