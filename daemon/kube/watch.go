package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// StaleAfter is the longest time without contact of an informer that works: the longest watch, and
// the time to notice that it did not end. A server that sends bookmarks is in contact every minute,
// and a watch that falls silent after its first bookmark is given up in less than four.
const StaleAfter = 11 * time.Minute

// timings of an informer; tests have shorter ones.
type timings struct {
	pageSize int64         // objects in a page of a list
	watch    time.Duration // the server is asked to end a watch after between this and twice this
	response time.Duration // how long a watch may take to begin, or to end after its time
	settle   time.Duration // a watch that lasts as long as this works
	verify   time.Duration // how long a watch may take to send the last known change
	// bookmark is how long a watch that has sent a bookmark may send nothing. The API server sends
	// one a minute, whatever happens (bookmarkFrequency in apiserver, pkg/storage/cacher).
	bookmark time.Duration
}

var defaultTimings = timings{pageSize: 500, watch: 5 * time.Minute, response: 30 * time.Second, settle: 5 * time.Second, verify: 10 * time.Second, bookmark: 3 * time.Minute}

var (
	errNoResponse = errors.New("no response")
	errCutShort   = errors.New("the watch ended as soon as it had begun")
	errSilent     = errors.New("the watch fell silent")
)

// Run lists and watches the resource until ctx ends, and retries after every error. It must be
// called once.
//
// A watch that ended is resumed at its last version. After an error there is a new list: the server
// may not have the events any more (410 Gone), or its data may have been restored from a backup. A
// restored server accepts a watch from a version that it has not reached yet, and sends nothing; it
// also accepts one from a version that it has reached again, and does not send the changes before
// it. Therefore, unless the last watch ended at its time and had events, the next one first
// verifies the history (watchstart.go).
func (s *Informer[T]) Run(ctx context.Context) {
	var wait backoff
	for failures, resumable := 0, false; ctx.Err() == nil; {
		var err error
		s.breaker.wait(ctx)
		resumable, err = s.listAndWatch(ctx, resumable, func() { failures = 0; s.onHealthy() })
		if ctx.Err() != nil {
			return
		}
		s.breaker.done(err)
		if err != nil {
			failures++
			// One error is normal: a list expires, a server restarts, a connection breaks.
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
		if !s.breaker.pause(ctx, wait.next(err)) {
			wait.reset()
		}
	}
}

// listAndWatch runs one watch, and before it the list if it needs one. It reports whether the next
// watch can resume at s.version. It calls healthy when the watch works.
func (s *Informer[T]) listAndWatch(ctx context.Context, resumable bool, healthy func()) (again bool, err error) {
	s.started = time.Now()
	resumable = !s.takeSelector() && resumable
	if resumable && s.mustVerify && !s.fewObjects && s.lastChange.versionBefore() != "" {
		return s.watch(ctx, healthy, fromLastChange)
	}
	if s.useWatchList() && (!resumable || s.mustVerify) {
		s.takeRelist()
		again, err = s.watch(ctx, healthy, withInitialEvents)
		if s.failedWatchLists++; !errors.Is(err, errNoResponse) && !errors.Is(err, errCutShort) {
			s.failedWatchLists = 0
		}
		if !s.noWatchList || err != nil {
			return again, err
		}
		resumable = false
	}
	if !resumable || s.mustVerify {
		if err := s.list(ctx); err != nil {
			return false, err
		}
	}
	s.started = time.Now()
	return s.watch(ctx, healthy, fromVersion)
}

// list reads all pages. Objects are stored as they come; those that are gone are removed after the
// last page.
func (s *Informer[T]) list(ctx context.Context) error {
	s.takeRelist()
	listed := map[string]bool{}
	s.lastChange, s.listed = change{}, 0
	for options := (metav1.ListOptions{Limit: s.timings.pageSize, LabelSelector: s.selector}); ; {
		page, err := s.source.List(ctx, options)
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		s.markAlive()
		if err := s.addPage(page, listed); err != nil {
			return fmt.Errorf("list: %w", err)
		}
		list, err := meta.ListAccessor(page)
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		s.version = list.GetResourceVersion()
		if options.Continue = list.GetContinue(); options.Continue == "" {
			break
		}
	}
	s.listLength, s.failedWatchLists = s.listed, 0
	s.removeUnlisted(listed)
	s.markSynced()
	s.mustVerify = false
	return nil
}

// markSynced is called at the end of each list.
func (s *Informer[T]) markSynced() {
	s.had.Store(s.reading)
	select {
	case <-s.synced:
	default:
		close(s.synced)
	}
}

// watch runs one watch to its end, and reports whether the next one can resume at s.version.
func (s *Informer[T]) watch(ctx context.Context, healthy func(), from watchStart) (resumable bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.mustVerify = true
	duration := s.timings.watch + rand.N(s.timings.watch)
	w, err := s.openWatch(ctx, cancel, from, duration)
	switch {
	case from == withInitialEvents && refusesWatchList(err):
		s.noWatchList = true
		return false, nil
	case err != nil:
		// A server that is overloaded (429) is not asked for the whole list in addition.
		return apierrors.IsTooManyRequests(err), fmt.Errorf("watch: %w", err)
	}
	defer w.Stop()
	if begun, err := s.verifyStart(ctx, w, from); !begun {
		return false, err
	}
	s.watching.Store(true)
	defer s.watching.Store(false)
	resumable, silent, err := s.handleEvents(ctx, w, duration, healthy)
	if err != nil {
		return false, fmt.Errorf("watch: %w", err)
	}
	// The watch ended too late if this process was stopped meanwhile, or if the server did not end
	// it.
	took := time.Since(s.started)
	s.mustVerify = silent || took < duration || took > duration+s.timings.response
	if resumable && took < duration {
		s.breaker.suspect()
	}
	return resumable, nil
}

// openWatch sends the request. The error is errNoResponse if the server does not accept the watch
// in time: client-go has no limit for that other than the context, which is the watch's.
func (s *Informer[T]) openWatch(ctx context.Context, cancel context.CancelCauseFunc, from watchStart, duration time.Duration) (watch.Interface, error) {
	seconds := int64(duration/time.Second) + 1
	options := metav1.ListOptions{LabelSelector: s.selector, ResourceVersion: s.version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds}
	switch from {
	case fromLastChange:
		options.ResourceVersion = s.lastChange.versionBefore()
	case withInitialEvents:
		options = initialOptions(options)
	}
	limit := time.AfterFunc(s.timings.response, func() { cancel(errNoResponse) })
	defer limit.Stop()
	w, err := s.source.Watch(ctx, options)
	if err != nil && context.Cause(ctx) == errNoResponse {
		return nil, fmt.Errorf("%w within %s", errNoResponse, s.timings.response)
	}
	return w, err
}

// handleEvents handles events until the watch ends, ctx ends, or a new list is requested. silent
// reports that there was no event, not even a bookmark.
func (s *Informer[T]) handleEvents(ctx context.Context, w watch.Interface, duration time.Duration, healthy func()) (resumable, silent bool, err error) {
	began := time.Now()
	// A watch may be silent until its time is over. After its first bookmark it may be silent for
	// timings.bookmark.
	overdue, settled, bookmarks := time.NewTimer(duration+s.timings.response), time.NewTimer(s.timings.settle), false
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
			early := silent && time.Since(began) < s.timings.settle
			if err := watchError(event, open, early); err != nil || !open {
				return err == nil, silent, err
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

// watchError returns the error with which a watch ended, nil if it goes on or ended as it should.
func watchError(event watch.Event, open, early bool) error {
	switch {
	case !open && early:
		// client-go returns an empty watch for a connection that broke before the response.
		return errCutShort
	case open && event.Type == watch.Error:
		return apierrors.FromObject(event.Object)
	default:
		return nil
	}
}

// handleEvent applies one event. An event that is not newer than the last one is a duplicate.
func (s *Informer[T]) handleEvent(event watch.Event) {
	s.markAlive()
	item, ok := event.Object.(T)
	if !ok || !plan.Newer(item.GetResourceVersion(), s.version, true) {
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

// markAlive records that the server sent something.
func (s *Informer[T]) markAlive() {
	s.contact.Store(time.Now().UnixNano())
	s.breaker.responded()
}
