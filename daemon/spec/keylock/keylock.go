// Package keylock has locks by name: calls that work on one thing wait for each other, those that
// work on others do not. It does not know what a name is of.
package keylock

import (
	"context"
	"sync"
)

// Locks lets Most calls at a time, 0 is one, work on what has one name. The zero value is ready. A
// name is forgotten when no call works on it or waits for it.
type Locks struct {
	Most int

	mu  sync.Mutex
	all map[string]*lock
}

type lock struct {
	held  chan struct{}
	users int
}

// Take waits until fewer calls work on the name than may. done ends this one's work.
func (l *Locks) Take(ctx context.Context, name string) (done func(), err error) {
	l.mu.Lock()
	one := l.enter(name)
	l.mu.Unlock()
	select {
	case one.held <- struct{}{}:
		return func() { <-one.held; l.leave(name, one) }, nil
	case <-ctx.Done():
		l.leave(name, one)
		return nil, ctx.Err()
	}
}

// Try is Take where no call works on the name or waits for it; else free is false.
func (l *Locks) Try(name string) (done func(), free bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all[name] != nil {
		return nil, false
	}
	one := l.enter(name)
	one.held <- struct{}{} // it is new, so that this does not wait
	return func() { <-one.held; l.leave(name, one) }, true
}

// Users is how many calls work on the name or wait for it.
func (l *Locks) Users(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.all[name]; one != nil {
		return one.users
	}
	return 0
}

// enter is called with the mutex held.
func (l *Locks) enter(name string) *lock {
	one := l.all[name]
	if one == nil {
		one = &lock{held: make(chan struct{}, max(1, l.Most))}
		if l.all == nil {
			l.all = map[string]*lock{}
		}
		l.all[name] = one
	}
	one.users++
	return one
}

func (l *Locks) leave(name string, one *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(l.all, name)
	}
}
