package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// A server whose data was restored counts versions on from an earlier one, and soon it has again those that were known
// of the lost days: a number alone does not tell one history from another. An object and the version at which
// it was written do: in another history it would have to be written at the very same version.
//
// The witness of a sieve is the youngest write that it knows, of an object that was there after it. As long as the
// server has that write, both have the same history up to it. After it the sieve has seen deletions at most, and
// bookmarks, so that the next watch begins there and not at the last bookmark: whatever the server did after the moment
// that it was restored to, it sends. (Its watch cache is as young as its process, and a restored server is a
// new process: what is older than the cache ends with 410 and a new list. apiserver, storage/cacher,
// watchCache.getAllEventsSinceLocked.)
//
// This costs one request for one object, and a second one if that object has changed since. A new list is
// needed only if the write cannot be asked for: the resource had no object, or the object changed or went and its
// old state is compacted, which the API server does after 5 to 10 minutes (--etcd-compaction-interval).

// mark is an object at the moment of a write.
type mark struct {
	namespace, name string
	uid             types.UID
	version         string
}

func markOf(o metav1.Object) mark {
	return mark{o.GetNamespace(), o.GetName(), o.GetUID(), o.GetResourceVersion()}
}

// mostGone is how many deletions after the witness are looked at one by one.
const mostGone = 8

// witness is what tells the server's history from another.
type witness struct {
	last mark
	gone []mark // kept objects that were deleted after it: a server that was restored to a moment between has them again
}

// wrote notes a write.
func (w *witness) wrote(o metav1.Object) {
	if newer(o.GetResourceVersion(), w.last.version) {
		w.last, w.gone = markOf(o), nil
	}
}

// deleted notes that a kept object is gone.
func (w *witness) deleted(o metav1.Object) {
	if len(w.gone) <= mostGone {
		w.gone = append(w.gone, markOf(o))
	}
}

// upToDate reports whether the next watch can go on without a list, because the server has the history that is known.
// If so, the watch begins with the witness.
func (s *Sieve[T]) upToDate(ctx context.Context) (bool, error) {
	if s.witness.last.version == "" || len(s.witness.gone) > mostGone {
		return false, nil
	}
	last := s.witness.last
	now, reached, err := s.look(ctx, last, metav1.ListOptions{})
	if err != nil {
		return apierrors.IsTooManyRequests(err), err
	}
	if newer(s.version, reached) {
		return false, nil
	}
	if now != last {
		then, _, err := s.look(ctx, last, metav1.ListOptions{ResourceVersion: last.version, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
		switch {
		case apierrors.IsTooManyRequests(err):
			return true, err
		case err != nil || then != last:
			return false, nil // compacted, or not in this history
		}
	}
	for _, gone := range s.witness.gone {
		now, _, err := s.look(ctx, gone, metav1.ListOptions{})
		if err != nil || now.uid == gone.uid {
			return apierrors.IsTooManyRequests(err), err
		}
	}
	s.version = last.version
	return true, nil
}

// look is an object as the server has it, the zero mark if it has not, and the version that the server has reached.
func (s *Sieve[T]) look(ctx context.Context, at mark, options metav1.ListOptions) (found mark, reached string, err error) {
	page, err := s.source.One(ctx, at.namespace, at.name, options)
	if err != nil {
		return mark{}, "", fmt.Errorf("list: %w", err)
	}
	s.hear()
	err = meta.EachListItem(page, func(o runtime.Object) error {
		if item, ok := o.(T); ok && item.GetName() == at.name {
			found = markOf(item)
		}
		return nil
	})
	if err != nil {
		return mark{}, "", fmt.Errorf("list: %w", err)
	}
	about, err := meta.ListAccessor(page)
	if err != nil {
		return mark{}, "", fmt.Errorf("list: %w", err)
	}
	return found, about.GetResourceVersion(), nil
}
