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

// MaxSilence is how long a sieve that is well may not have heard anything: the longest watch, and
// what it takes to notice that it did not end. From a server that sends bookmarks it hears every minute,
// and gives a watch up that fell silent after the first of them in less than four.
const MaxSilence = 11 * time.Minute

// pace is the times of a sieve; tests have shorter ones.
type pace struct {
	page   int64         // objects in a page
	watch  time.Duration // a watch is asked to last between this and twice this
	answer time.Duration // how long a watch may take to begin, or to end after its time
	settle time.Duration // a watch that lived so long was a good one
	proof  time.Duration // how long a watch may take to bring the witness
	// quiet is how long a watch that has brought a bookmark may bring nothing. The API server sends
	// one a minute, whatever happens (bookmarkFrequency in apiserver's storage/cacher).
	quiet time.Duration
}

var usualPace = pace{page: 500, watch: 5 * time.Minute, answer: 30 * time.Second, settle: 5 * time.Second, proof: 10 * time.Second, quiet: 3 * time.Minute}

var (
	errNoAnswer = errors.New("no answer")
	errCutShort = errors.New("the watch ended as soon as it had begun")
	errSilent   = errors.New("the watch fell silent")
)

// Run follows the resource until ctx ends, whatever happens. It must be called once.
//
// A watch that ends is begun again where it ended. One that cannot be begun, or ends with an error,
// is followed by a new list: the server may have forgotten what happened meanwhile (410 Gone), or
// may be one whose data was restored from an earlier day. Such a server takes a watch that begins at a
// version which it has yet to reach, and says nothing, or one at a version which it has reached again, and says
// nothing of what came before: unless the last watch ended at its time and had brought something, the next one
// has to show first that the server has the history that is known (witness.go).
func (s *Sieve[T]) Run(ctx context.Context) {
	var wait backoff
	for failures, listed := 0, false; ctx.Err() == nil; {
		var err error
		s.outage.enter(ctx)
		listed, err = s.turn(ctx, listed, func() { failures = 0; s.fine() })
		if ctx.Err() != nil {
			return
		}
		s.outage.left(err)
		if err != nil {
			failures++
			// Once is nothing: a list expires, a server restarts, a connection breaks.
			if failures > 1 {
				s.fail(err)
			}
		}
		if time.Since(s.began) >= s.pace.settle {
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
func (s *Sieve[T]) turn(ctx context.Context, listed bool, well func()) (goOn bool, err error) {
	s.began = time.Now()
	if listed && s.doubt && !s.small && s.witness.before() != "" {
		return s.watch(ctx, well, fromWitness)
	}
	if s.streams() && (!listed || s.doubt) {
		goOn, err = s.watch(ctx, well, fromNothing)
		if s.brokenStreams++; !errors.Is(err, errNoAnswer) && !errors.Is(err, errCutShort) {
			s.brokenStreams = 0
		}
		if !s.refusesStreams || err != nil {
			return goOn, err
		}
		listed = false
	}
	if !listed || s.doubt {
		if err := s.list(ctx); err != nil {
			return false, err
		}
	}
	s.began = time.Now()
	return s.watch(ctx, well, fromVersion)
}

// list reads all pages. Objects are told as they come; those that are gone, after the last page.
func (s *Sieve[T]) list(ctx context.Context) error {
	fresh := map[string]bool{}
	s.witness, s.reading = witness{}, 0
	for options := (metav1.ListOptions{Limit: s.pace.page}); ; {
		page, err := s.source.List(ctx, options)
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		s.hear()
		if err := s.take(page, fresh); err != nil {
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
	s.length, s.brokenStreams = s.reading, 0
	s.forget(fresh)
	s.sync()
	s.doubt = false
	return nil
}

func (s *Sieve[T]) sync() {
	select {
	case <-s.synced:
	default:
		close(s.synced)
	}
}

// watch begins a watch and follows it to its end. It reports whether the next watch can go on from there. well is
// called when this one works.
func (s *Sieve[T]) watch(ctx context.Context, well func(), from start) (goOn bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.doubt = true
	lasts := s.pace.watch + rand.N(s.pace.watch)
	seconds := int64(lasts/time.Second) + 1
	guard := time.AfterFunc(s.pace.answer, func() { cancel(errNoAnswer) })
	options := metav1.ListOptions{ResourceVersion: s.version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds}
	switch from {
	case fromWitness:
		options.ResourceVersion = s.witness.before()
	case fromNothing:
		options = initialOptions(options)
	}
	w, err := s.source.Watch(ctx, options)
	guard.Stop()
	switch {
	case from == fromNothing && refusesWatchList(err):
		s.refusesStreams = true
		return false, nil
	case context.Cause(ctx) == errNoAnswer && err != nil:
		return false, fmt.Errorf("watch: %w within %s", errNoAnswer, s.pace.answer)
	case err != nil:
		// A server that has too much to do is not asked for the whole list on top.
		return apierrors.IsTooManyRequests(err), fmt.Errorf("watch: %w", err)
	}
	defer w.Stop()
	if begun, err := s.begin(ctx, w, from); !begun {
		return false, err
	}
	s.watched.Store(true)
	defer s.watched.Store(false)
	goOn, silent, err := s.follow(ctx, w, lasts, well)
	if err != nil {
		return false, fmt.Errorf("watch: %w", err)
	}
	// A process that was stopped meanwhile, or a watch that nobody ended, is late.
	took := time.Since(s.began)
	s.doubt = silent || took < lasts || took > lasts+s.pace.answer
	return goOn, nil
}

// follow takes events until the watch ends. silent says that there were none at all, bookmarks
// included.
func (s *Sieve[T]) follow(ctx context.Context, w watch.Interface, lasts time.Duration, well func()) (goOn, silent bool, err error) {
	began := time.Now()
	// At first a watch may be silent until its time is over; once it brought a bookmark, for so long.
	overdue, settled, bookmarks := time.NewTimer(lasts+s.pace.answer), time.NewTimer(s.pace.settle), false
	defer overdue.Stop()
	defer settled.Stop()
	for silent = true; ; {
		select {
		case <-ctx.Done():
			return false, silent, nil
		case <-s.refresh:
			return false, silent, nil
		case <-overdue.C:
			return false, silent, errSilent
		case <-settled.C:
			s.hear()
			well()
		case event, open := <-w.ResultChan():
			switch {
			case !open && silent && time.Since(began) < s.pace.settle:
				// client-go makes an empty watch of a connection that broke before the answer.
				return false, silent, errCutShort
			case !open:
				return true, silent, nil
			case event.Type == watch.Error:
				return false, silent, apierrors.FromObject(event.Object)
			}
			if silent {
				well()
			}
			silent = false
			if bookmarks = bookmarks || event.Type == watch.Bookmark; bookmarks {
				overdue.Reset(s.pace.quiet)
			}
			s.event(event)
		}
	}
}

// event notes one event. An event that is not newer than what is known already was sent twice.
func (s *Sieve[T]) event(event watch.Event) {
	s.hear()
	item, ok := event.Object.(T)
	if !ok || !newer(item.GetResourceVersion(), s.version) {
		return
	}
	s.version = item.GetResourceVersion()
	if event.Type == watch.Bookmark {
		return
	}
	s.witness.saw(item)
	if event.Type == watch.Deleted || !s.keep(item) {
		s.drop(item)
		return
	}
	s.put(item)
}

func (s *Sieve[T]) hear() {
	s.heard.Store(time.Now().UnixNano())
	s.outage.ended()
}

// newer compares resource versions, which are numbers that only grow (Kubernetes 1.35, KEP-5504).
// One that is no number counts as newer.
func newer(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX != nil || errY != nil || x > y
}
