package storagecapacity

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// refusals are the classes whose objects the API server refuses, as admission policies do that do
// not list a class. They wait by themselves: the other classes are published.
type refusals struct {
	mu      sync.Mutex
	classes map[string]refusal
}

type refusal struct {
	object string // its name
	err    error
	until  time.Time // before that it is not tried again
}

// RefusedFor returns what the API server said when it last refused what this node publishes for a
// class, "" if it did not refuse it. Each node hears the same, whatever its object is named.
func (p *Publisher) RefusedFor(class string) string {
	p.refused.mu.Lock()
	defer p.refused.mu.Unlock()
	r, refused := p.refused.classes[class]
	if !refused {
		return ""
	}
	return strings.ReplaceAll(r.err.Error(), " "+strconv.Quote(r.object), "")
}

// write does one step. The refusal of one class's object is no error.
func (p *Publisher) write(ctx context.Context, what kind, o Object) error {
	err := p.do(ctx, what, o)
	if what != raise && what != lower || err != nil && !refusedByRule(err) {
		return err
	}
	p.refused.mu.Lock()
	defer p.refused.mu.Unlock()
	if delete(p.refused.classes, o.Class); err != nil {
		p.refused.classes[o.Class] = refusal{o.Name, err, time.Now().Add(refusedWait)}
	}
	return nil
}

// refusedByRule reports whether the API server understood a request, and will not have it: without
// a right, or against an admission policy (403 and 422: reasonToErrorCode of k8s.io/apiserver,
// pkg/admission/plugin/policy/validating).
func refusedByRule(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }

// tryable takes the objects out of what is wanted whose classes were refused just now, and returns
// when the first of them is tried again. What is published of such a class stays as it is.
func (p *Publisher) tryable(wanted []Object, now time.Time) (rest []Object, next time.Duration) {
	p.refused.mu.Lock()
	defer p.refused.mu.Unlock()
	next = reviewEvery
	maps.DeleteFunc(p.refused.classes, func(class string, _ refusal) bool {
		return !slices.ContainsFunc(wanted, func(o Object) bool { return o.Class == class })
	})
	for _, o := range wanted {
		wait := p.refused.classes[o.Class].until.Sub(now)
		if wait > 0 {
			next = min(next, wait)
			there := false
			if o, there = p.published[o.Name]; !there {
				continue
			}
		}
		rest = append(rest, o)
	}
	return rest, next
}

// retryRefused has each class tried at once.
func (p *Publisher) retryRefused() {
	p.refused.mu.Lock()
	defer p.refused.mu.Unlock()
	for class, r := range p.refused.classes {
		r.until = time.Time{}
		p.refused.classes[class] = r
	}
}

// firstRefused is what is told of a turn without an error: the refusal of the first class.
func (p *Publisher) firstRefused() error {
	p.refused.mu.Lock()
	defer p.refused.mu.Unlock()
	for _, class := range slices.Sorted(maps.Keys(p.refused.classes)) {
		return fmt.Errorf("what this node can give of class %s is not published for the "+
			"scheduler: %w; an administrator of the cluster mends it with: %s", class,
			p.refused.classes[class].err, p.Mend)
	}
	return nil
}
