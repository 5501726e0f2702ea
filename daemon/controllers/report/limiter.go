package report

import (
	"sync"
	"time"
)

// Limiter bounds the warnings about the objects of one namespace. Its threat is a tenant: who may
// create claims and change them as often as they like could fill the log of every node, and the
// cluster with events. A warning that is left out is written later, when the object is looked at
// again. The zero value is ready for use.
type Limiter struct {
	mu         sync.Mutex
	namespaces map[string]*allowance
}

// allowance is how many warnings may still be written about the objects of a namespace.
type allowance struct {
	left   float64
	at     time.Time // when that was so
	logged time.Time // when Allow returned logIt last
}

const (
	// burst is more than the claims that one namespace usually has waiting.
	burst = 1000
	// rate is in warnings a second: 400 claims that wait repeat theirs within 15 minutes.
	rate = 1.0
	// manyNamespaces is how many namespaces are remembered before those with a whole allowance are
	// forgotten.
	manyNamespaces = 1000
	// LimitedRetry is when an object is looked at again whose warning was left out.
	LimitedRetry = time.Minute
)

// Allow reports whether a warning about an object of a namespace may be written now. If not, logIt
// is true once in LimitedRetry: the caller then logs that warnings are left out.
func (l *Limiter) Allow(namespace string, now time.Time) (allowed, logIt bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.namespaces[namespace]
	if a == nil {
		a = l.add(namespace, now)
	}
	a.left, a.at = a.now(now), now
	if a.left >= 1 {
		a.left--
		return true, false
	}
	if logIt = now.Sub(a.logged) >= LimitedRetry; logIt {
		a.logged = now
	}
	return false, logIt
}

func (a *allowance) now(now time.Time) float64 {
	return min(burst, a.left+rate*now.Sub(a.at).Seconds())
}

// add remembers a namespace. If there are many, those whose allowance is whole again are dropped.
func (l *Limiter) add(namespace string, now time.Time) *allowance {
	if l.namespaces == nil {
		l.namespaces = map[string]*allowance{}
	}
	if len(l.namespaces) >= manyNamespaces {
		for name, a := range l.namespaces {
			if a.now(now) == burst {
				delete(l.namespaces, name)
			}
		}
	}
	a := &allowance{left: burst, at: now}
	l.namespaces[namespace] = a
	return a
}
